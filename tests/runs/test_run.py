"""Running work as operations: what is submitted, how it is steered, what is told about it.

The store and the outputs are real; only the processes are made up.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from hypervisor.core.errors import HypervisorError, InvalidInput, NotFound, WrongState
from hypervisor.queue.add import add
from hypervisor.queue.context import Context
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Usage, Worker, parse_token
from hypervisor.queue.sql import insert, steer
from hypervisor.queue.steer import cancel
from hypervisor.queue.task import NewTask
from hypervisor.resources.host import LocalHost
from hypervisor.runs import run as running
from hypervisor.runs.outputs.files import Outputs
from hypervisor.runs.spec import Pause, RunSpec
from hypervisor.runs.status import attempts, status
from hypervisor.runs.supervise import supervise
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.intercept import intercept
from tests.support.ledger import Ledger
from tests.support.parts import parts

NOW = 1_800_000_000_000
LEASE = 60_000
SPEC = RunSpec("/", ("true",))
HERE = Worker("w-1", "worker-1", "here", "boot/1", 11, 100)
THERE = Worker("w-2", "worker-2", "there", "boot/2", 12, 100)
STRANGER = Worker("w-3", "ann", "here", "boot/1", 13, 100)


class FakeHost(LocalHost):
    def host(self):
        return "here"

    def boot(self):
        return "boot/1"


class FakeLauncher:
    """Writes down what it is asked to do."""

    def __init__(self):
        self.pids: list[int | None] = [None]  # what looking for a supervisor finds, in turn
        self.started = 0
        self.leaves = False
        self.kept: list[str] = []
        self.asked: list[set[int]] = []

    def supervisor(self):
        return self.pids.pop(0) if len(self.pids) > 1 else self.pids[0]

    def start_supervisor(self):
        self.started += 1
        self.pids = [0, 0, 4711]  # it takes a moment to say its number

    def is_leaving(self):
        return self.leaves

    def submitting(self):
        return nullcontext()

    def keep_environment(self, batch):
        self.kept.append(batch)
        return True

    def memory(self, workers):
        self.asked.append(set(workers))
        return dict.fromkeys(workers, 1 << 20)

    def read_status(self):
        return {"zone": "safe"}


@pytest.fixture
def hv(tmp_path):
    launcher: Any = FakeLauncher()
    given = parts(launcher=launcher, outputs=Outputs(str(tmp_path)))
    store = Ledger(SqliteDatabase(str(tmp_path / "x.db"), relaxed=True))
    context = Context(store, FakeHost(), "me", parts=given)
    yield context
    context.close()


def items(*names, **more):
    return [NewTask(name, key=name, **more) for name in names]


def run(hv, *names, spec=SPEC, name="b", now=NOW, **more):
    return running.run(hv, spec, items(*names, **more), name, now)


def counts(submitted):
    return tuple(submitted[2:6])  # added, retried, still open, already done


def claim(hv, worker=HERE, limit=1, now=NOW, batch=None):
    request = ClaimRequest(worker, limit, LEASE, ClaimFilter(batch=batch))
    return [parse_token(lease.token) for lease in hv.store.claim(request, now)]


def settle(hv, token, event, now=NOW, **more):
    reason = None if event == "complete" else event
    hv.store.settle([AttemptResult(token, event, reason=reason, **more)], now)


def at_work(hv, batch, worker=HERE):
    hv.store.register(worker, batch, NOW)
    return worker


def say(hv, token, text):
    with open(hv.outputs.prepare(token.task, token.attempt), "wb") as file:
        file.write(text)


# Submitting


def test_a_first_run_adds_everything(hv):
    submitted = run(hv, "a", "b", "c")
    assert counts(submitted) == (3, 0, 0, 0) and submitted.to_do == 3
    assert (submitted.batch.name, submitted.since) == ("b", NOW)
    assert hv.store.batch("b").spec == {"cwd": "/", "command": ["true"]}
    assert hv.launcher.kept == [submitted.batch.id]


def test_running_again_skips_what_is_done_and_tries_again_what_is_not(hv):
    run(hv, *"abcdefg")
    done, failed, cancelled, blocked, _going, back = claim(hv, limit=6)
    settle(hv, done, "complete")
    settle(hv, failed, "fail")
    hv.store.cancel(cancelled.task, "", "me", NOW)
    settle(hv, blocked, "block")
    settle(hv, back, "back_off", retry_at=NOW + 50)
    again = run(hv, *"abcdefgh", now=NOW + 1)
    assert counts(again) == (1, 3, 3, 1) and again.to_do == 7
    states = {task.title: task.state for task in running.reports(hv, again.batch.id, NOW)}
    assert states == {
        "a": "done",
        "b": "active",
        "c": "active",
        "d": "active",
        "e": "in_progress",
        "f": "waiting",
        "g": "active",
        "h": "active",
    }
    kinds = [event.kind for event in hv.store.events(0, 99)]
    assert kinds.count("declare") == 1 and kinds.count("reopen") == 3


def test_a_run_with_fewer_items_leaves_the_others_alone(hv):
    run(hv, "a", "b")
    for token in claim(hv, limit=2):
        settle(hv, token, "fail")
    assert counts(run(hv, "b", now=NOW + 1)) == (0, 1, 0, 0)
    states = {task.title: task.state for task in running.reports(hv, hv.store.batch("b").id)}
    assert states == {"a": "failed", "b": "active"}


def test_an_item_given_twice_is_one_task_and_counted_once(hv):
    assert counts(run(hv, "a", "b", "a")) == (2, 0, 0, 0)
    assert counts(run(hv, "a", "a", now=NOW + 1)) == (0, 0, 1, 0)
    [token] = claim(hv)
    settle(hv, token, "fail")
    assert counts(run(hv, "a", "a", "b", now=NOW + 2)) == (0, 1, 1, 0)
    [token] = claim(hv)
    settle(hv, token, "complete")
    assert counts(run(hv, "a", "a", "b", now=NOW + 3)) == (0, 0, 1, 1)


def test_an_item_that_comes_again_in_a_later_slice_is_still_one_task(hv, monkeypatch):
    monkeypatch.setattr(running, "SLICE", 2)
    assert run(hv, "a", "b", "a", "c", "b").added == 3
    [token] = claim(hv)
    settle(hv, token, "fail")
    again = run(hv, "a", "b", "a", "c", "b", "a", now=NOW + 1)
    assert (again.added, again.retried, again.already_done) == (0, 1, 0)
    assert running.summary(hv, "b", NOW).states == {"active": 3}


def test_somebody_else_may_bring_a_failed_task_back_at_the_same_time(hv, monkeypatch):
    run(hv, "a", "b")
    for token in claim(hv, limit=2):
        settle(hv, token, "fail")
    came: list[str] = []

    def too_late(reopen, task, *more, **when):
        if not came:
            came.append(task)
            reopen(task, *more, **when)
        return reopen(task, *more, **when)

    intercept(monkeypatch, hv.store, steer.requeue, too_late)
    again = run(hv, "a", "b", now=NOW + 1)
    assert again.to_do == 2 and len(came) == 1
    assert hv.store.stats(again.batch.id, NOW).states["active"] == 2


def test_a_changed_command_is_for_the_same_batch(hv):
    first = run(hv, "a")
    second = run(hv, "a", spec=SPEC._replace(command=("false",), workers=3))
    assert second.batch.id == first.batch.id
    assert hv.store.batch("b").spec == {"cwd": "/", "command": ["false"], "workers": 3}
    assert [event.kind for event in hv.store.events(0, 99)].count("declare") == 2


def test_running_again_ends_the_pause_of_the_batch_but_no_other(hv):
    batch = run(hv, "a").batch
    running.pause(hv, batch="b", now=NOW)
    running.pause(hv, type="x", now=NOW)
    run(hv, "a", now=NOW + 1)
    assert [(p.scope, p.name) for p in hv.store.pauses()] == [("type", "x")]
    assert [e.batch for e in hv.store.events(0, 99) if e.kind == "resume"] == [batch.id]


def test_many_items_go_in_slices_and_are_read_as_they_go(hv, monkeypatch):
    read = 0
    calls: list[tuple[int, int]] = []

    def stream(count):
        nonlocal read
        for n in range(count):
            read += 1
            yield NewTask(f"{n}", key=f"{n}")

    def counted(add, part, *more):
        calls.append((len(part), read))
        return add(part, *more)

    intercept(monkeypatch, hv.store, insert.add, counted)
    submitted = running.run(hv, SPEC, stream(2_501), "b", NOW)
    assert calls == [(100, 100), (1_000, 1_100), (1_000, 2_100), (401, 2_501)]
    assert counts(submitted) == (2_501, 0, 0, 0)
    assert running.summary(hv, "b", NOW).total == 2_501


def test_those_that_wait_for_others_come_with_them(hv):
    tasks = [NewTask("first", key="first", after=("last",)), *items(*map(str, range(200)), "last")]
    running.run(hv, SPEC, tasks, "b", NOW)
    states = {task.title: task.state for task in running.reports(hv, hv.store.batch("b").id, NOW)}
    assert states["first"] == "waiting" and states["last"] == "active"


def test_those_that_wait_for_others_come_with_them_in_a_later_slice_too(hv):
    early, between = items(*map(str, range(150))), items(*map(str, range(200, 2_500)))
    tasks = [*early, NewTask("first", key="first", after=("last",)), *between, *items("last")]
    running.run(hv, SPEC, tasks, "b", NOW)
    states = {task.title: task.state for task in running.reports(hv, hv.store.batch("b").id, NOW)}
    assert states["first"] == "waiting" and states["last"] == "active"


def test_a_run_that_was_interrupted_while_submitting_goes_on(hv, monkeypatch):
    monkeypatch.setattr(running, "SLICE", 10)

    def interrupted():
        yield from items(*map(str, range(25)))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        running.run(hv, SPEC, interrupted(), "b", NOW)
    assert counts(run(hv, *map(str, range(30)))) == (10, 0, 20, 0)


def test_items_may_wait_for_items_of_an_earlier_slice(hv, monkeypatch):
    monkeypatch.setattr(running, "SLICE", 2)
    tasks = [*items("a", "b"), NewTask("c", key="c", after=("a",))]
    running.run(hv, SPEC, tasks, "b", NOW)
    states = {task.title: task.state for task in running.reports(hv, hv.store.batch("b").id, NOW)}
    assert states == {"a": "active", "b": "active", "c": "waiting"}


@pytest.mark.parametrize(
    "spec, says",
    [
        (RunSpec("/"), "say what to run"),
        (RunSpec("/", ("true",), "m:f"), "say what to run"),
        (SPEC._replace(strategy="wild"), "unknown strategy: use one of auto, parallel"),
        (SPEC._replace(workers=0), "number of workers must be between 1 and"),
        (SPEC._replace(workers=10**9), "number of workers must be between"),
        (SPEC._replace(claim=0), "claim at once must be between 1 and 1,000"),
        (RunSpec("/", function="module"), "'module' is no function"),
        (RunSpec("/", function=":f"), "':f' is no function"),
        (RunSpec("/", function="m:"), "'m:' is no function"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused_before_anything_is_written(hv, spec, says):
    with pytest.raises(InvalidInput, match=says):
        running.run(hv, spec, items("a"), "b", NOW)
    assert hv.store.events(0, 9) == [] and hv.launcher.kept == []


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201, "\0"])
def test_a_bad_batch_name_is_refused(hv, name):
    with pytest.raises(InvalidInput, match="the batch's name"):
        run(hv, "a", name=name)
    assert hv.store.events(0, 9) == []


# How it went


def test_unsuccessful_counts_this_run_only(hv):
    first = run(hv, *"abcd")
    one, two = claim(hv, limit=2)
    settle(hv, one, "fail", NOW + 1)
    settle(hv, two, "complete", NOW + 1)
    assert running.unsuccessful(hv, first) == 3, "one failed, two are still to do"
    for token in claim(hv, limit=2, now=NOW + 2):
        settle(hv, token, "complete", NOW + 3)
    assert running.unsuccessful(hv, first) == 1
    second = run(hv, "e", now=NOW + 10)
    [token] = claim(hv, now=NOW + 11)
    settle(hv, token, "complete", NOW + 12)
    assert running.unsuccessful(hv, second) == 0, "a failed in the run before"
    third = run(hv, "a", "f", now=NOW + 20)
    again, other = claim(hv, limit=2, now=NOW + 21)
    settle(hv, again, "fail", NOW + 22)
    settle(hv, other, "block", NOW + 22)
    assert running.unsuccessful(hv, third) == 2
    assert running.outcome(hv, third) == {"failed": 1, "blocked": 1}


def test_unsuccessful_counts_what_was_called_off_and_what_waits(hv):
    submitted = run(hv, "a", "b", "c")
    cancel(hv, hv.store.report(submitted.batch.id, "", 1, NOW)[0].id, now=NOW + 1)
    [token] = claim(hv, now=NOW + 1)
    settle(hv, token, "back_off", NOW + 2, retry_at=NOW + 999)
    claim(hv, now=NOW + 2)
    assert running.unsuccessful(hv, submitted) == 3


def test_the_summary_adds_up(hv):
    run(hv, *"abcd")
    a, b = claim(hv, limit=2)
    settle(hv, a, "back_off", NOW + 1_000, retry_at=NOW + 1_001, usage=Usage(1, 500, 100, 7))
    settle(hv, b, "fail", NOW + 2_000, usage=Usage(3, 250, 4_000, None))
    hv.store.promote_due(NOW + 1_001)
    [again] = claim(hv, now=NOW + 3_000)
    settle(hv, again, "complete", NOW + 3_250, result="fine", usage=Usage(0, 125, 50, 7))
    [going] = claim(hv, now=NOW + 4_000)
    found = running.summary(hv, "b", NOW + 10_000)
    assert (found.batch, found.id) == ("b", hv.store.batch("b").id)
    assert found.states == {"done": 1, "failed": 1, "in_progress": 1, "active": 1}
    assert (found.total, found.succeeded, found.attempts) == (4, False, 4)
    assert found.runtime_seconds == 10.0 and found.attempt_seconds == 1 + 2 + 0.25 + 6
    assert found.cpu_seconds == 0.875 and found.peak_bytes == 4_000 * 1024
    assert (found.tokens, found.cost) == (None, None)
    first, second, third, last = found.tasks
    assert (first.state, first.result, first.attempts, first.exit_code) == ("done", "fine", 2, 0)
    assert (second.reason, second.exit_code, second.seconds) == ("fail", 3, 2.0)
    assert (third.id, third.exit_code, third.seconds) == (going.task, None, 6.0)
    assert (last.attempts, last.seconds, last.peak_bytes) == (0, 0.0, 0)


def test_a_summary_is_a_success_only_if_all_is_done(hv):
    run(hv)
    empty = running.summary(hv, "b", NOW)
    assert (empty.total, empty.succeeded, empty.runtime_seconds) == (0, False, 0.0)
    run(hv, "a", "b")
    one, other = claim(hv, limit=2)
    settle(hv, one, "complete", NOW + 5)
    assert not running.summary(hv, "b", NOW + 9).succeeded
    settle(hv, other, "complete", NOW + 6)
    found = running.summary(hv, "b", NOW + 9)
    assert found.succeeded and found.runtime_seconds == 0.006


def test_a_summary_of_nothing_is_not_found(hv):
    with pytest.raises(NotFound, match="no batch is called 'x'"):
        running.summary(hv, "x")


def test_reports_of_many_tasks_come_in_pages(hv, monkeypatch):
    monkeypatch.setattr(running, "PAGE", 3)
    run(hv, *map(str, range(10)))
    assert [t.title for t in running.summary(hv, "b", NOW).tasks] == [str(n) for n in range(10)]


# Steering


def test_pausing_and_resuming_by_batch_type_or_everything(hv):
    batch = run(hv, "a").batch.id
    for scope, name, how in (
        ("batch", batch, {"batch": "b"}),
        ("batch", batch, {"batch": batch[:8]}),
        ("type", "task", {"type": "task"}),
        ("all", "", {}),
    ):
        assert running.pause(hv, **how, reason="why", now=NOW) is True
        assert running.pause(hv, **how, now=NOW) is False
        assert hv.store.pauses() == [Pause(scope, name, "why", "me", NOW)]
        assert claim(hv) == []
        assert running.resume(hv, **how, now=NOW) is True
        assert running.resume(hv, **how, now=NOW) is False
    assert len(claim(hv)) == 1


@pytest.mark.parametrize(
    "how, error, says",
    [
        ({"batch": "b", "type": "x"}, InvalidInput, "a batch or a type, not both"),
        ({"batch": "nope"}, NotFound, "no batch is called 'nope'"),
        ({"type": "two words"}, InvalidInput, "the type 'two words' must not contain spaces"),
        ({"type": ""}, InvalidInput, "the type is empty"),
    ],
)
def test_a_pause_of_nonsense_is_refused(hv, how, error, says):
    run(hv, "a")
    for verb in (running.pause, running.resume):
        with pytest.raises(error, match=says):
            verb(hv, **how)
    assert hv.store.pauses() == []


def test_a_pause_takes_any_reason_that_is_text(hv):
    with pytest.raises(InvalidInput, match="the reason contains a NUL"):
        running.pause(hv, reason="a\0b")
    assert running.pause(hv, reason="ü\n" * 10)


def test_scaling_all_or_a_batch(hv):
    batch = run(hv, "a").batch.id
    running.scale(hv, 3, now=NOW)
    running.scale(hv, 0, batch="b", now=NOW)
    assert hv.store.setting("workers") == "3" and hv.store.setting(f"workers {batch}") == "0"
    running.scale(hv, None, now=NOW)
    assert hv.store.setting("workers") is None and hv.store.setting(f"workers {batch}") == "0"


@pytest.mark.parametrize("workers", [-1, 10_001, True, "3", 1.5])
def test_scaling_to_nonsense_is_refused(hv, workers):
    with pytest.raises(InvalidInput, match="the number of workers must be"):
        running.scale(hv, workers)
    assert hv.store.setting("workers") is None


def test_scaling_an_unknown_batch_is_refused(hv):
    with pytest.raises(NotFound, match="no batch is called 'x'"):
        running.scale(hv, 3, batch="x")


@pytest.mark.parametrize("retry, after", [(False, "fail"), (True, "release")])
def test_killing_asks_the_worker_to_stop(hv, retry, after):
    batch = run(hv, "a").batch.id
    [token] = claim(hv, at_work(hv, batch))
    assert running.kill(hv, token.task[:10], "too loud", retry, NOW) == (token.task, "stopping")
    [stop] = hv.store.stops([token.task])
    assert (stop.next, stop.reason, stop.actor) == (after, "killed by me: too loud", "me")
    running.kill(hv, token.task, retry=retry, now=NOW)
    assert [s.reason for s in hv.store.stops([token.task])] == ["killed by me"]
    assert hv.store.task(token.task).state == "in_progress"


def test_killing_what_others_claimed_or_what_does_not_run_is_refused(hv):
    run(hv, "a", "b", "c")
    mine, done = claim(hv, STRANGER, 2)
    settle(hv, done, "complete")
    waiting = hv.store.report(hv.store.batch("b").id, "", 9, NOW)[2].id
    before = hv.store.events(0, 99)
    with pytest.raises(WrongState, match=r"did not start.*; `hv cancel` and"):
        running.kill(hv, mine.task)
    with pytest.raises(WrongState, match=f"{done.task} is done: nothing of it runs"):
        running.kill(hv, done.task)
    with pytest.raises(WrongState, match="is active: nothing of it runs"):
        running.kill(hv, waiting)
    with pytest.raises(NotFound):
        running.kill(hv, "zzzzzzzz")
    with pytest.raises(InvalidInput):
        running.kill(hv, mine.task, "a\0b")
    assert hv.store.events(0, 99) == before


def test_cancelling_what_runs_stops_it_first(hv):
    batch = run(hv, "a", "b", "c").batch.id
    [ours] = claim(hv, at_work(hv, batch))
    [theirs] = claim(hv, STRANGER)
    queued = hv.store.report(batch, "", 9, NOW)[2].id
    assert cancel(hv, ours.task, "no need", NOW) == (ours.task, "stopping")
    assert hv.store.task(ours.task).state == "in_progress", "its worker has the last word"
    assert [(s.next, s.reason) for s in hv.store.stops([ours.task])] == [("cancel", "no need")]
    assert cancel(hv, theirs.task, now=NOW) == (theirs.task, "cancelled")
    assert cancel(hv, queued, now=NOW) == (queued, "cancelled")
    with pytest.raises(WrongState, match="it is cancelled"):
        cancel(hv, queued, now=NOW)


def test_stopping_a_batch_puts_its_running_tasks_back_but_not_what_was_called_off(hv):
    batch, other = run(hv, "a", "b", "c").batch.id, run(hv, "d", name="other").batch.id
    at_work(hv, batch)
    one, two, three = claim(hv, HERE, 3, batch=batch)
    [elsewhere] = claim(hv, at_work(hv, other, THERE), batch=other)
    cancel(hv, two.task, now=NOW)
    assert running.stop_batch(hv, "b", "enough", NOW) == 3
    stops = {stop.task: stop.next for stop in hv.store.stops([one.task, two.task, three.task])}
    assert stops == {one.task: "release", two.task: "cancel", three.task: "release"}
    assert [s.reason for s in hv.store.stops([one.task])] == ["stopped by me: enough"]
    assert hv.store.stops([elsewhere.task]) == []
    assert running.stop_batch(hv, "other") == 1


# Looking


def test_the_status_of_a_batch_and_of_everything(hv):
    batch = run(hv, "a", "b").batch
    run(hv, "c", name="other")
    running.pause(hv, batch="other", now=NOW)
    running.pause(hv, type="x", now=NOW)
    [token] = claim(hv, at_work(hv, batch.id))
    hv.launcher.pids = [99]
    mine = status(hv, "b", NOW)
    assert mine.batch == hv.store.batch("b")
    assert (mine.stats.total, mine.stats.claimed) == (2, 1)
    assert [a.task for a in mine.attempts] == [token.task]
    assert [p.scope for p in mine.pauses] == ["type"], "the other batch's pause is not ours"
    assert (mine.supervisor, mine.host) == (99, {"zone": "safe"})
    whole = status(hv, now=NOW)
    assert whole.batch is None and whole.stats.total == 3
    assert [p.scope for p in whole.pauses] == ["batch", "type"]
    assert status(hv, "other", NOW).attempts == ()


def test_attempts_are_told_with_memory_and_last_line_where_this_host_knows(hv):
    batch = run(hv, "a", "b", "c").batch.id
    [started] = claim(hv, at_work(hv, batch))
    [only_claimed] = claim(hv, HERE, now=NOW + 1)
    [far] = claim(hv, at_work(hv, batch, THERE), now=NOW + 2)
    say(hv, started, b"first\nsecond\n")
    say(hv, far, b"not ours to read\n")
    found = attempts(hv, "b")
    assert [a.task for a in found] == [started.task, only_claimed.task, far.task]
    assert [a.memory for a in found] == [1 << 20, 1 << 20, None]
    assert [a.last_line for a in found] == ["second", "", ""]
    assert [a.started for a in found] == [True, False, True]
    assert [(a.title, a.batch, a.attempt, a.worker, a.pid, a.since) for a in found[:1]] == [
        ("a", batch, 1, "worker-1", 11, NOW)
    ]
    assert hv.launcher.asked[-1] == {11}, "nobody asks about another host's processes"


def test_the_output_of_the_last_attempt_that_left_one(hv):
    batch = run(hv, "a").batch.id
    for number, text in enumerate([b"one\n", b"two\n", None], 1):
        [token] = claim(hv, batch=batch)
        assert token.attempt == number
        if text is not None:
            say(hv, token, text)
        settle(hv, token, "release")
    assert running.latest_output(hv, token.task) == 2
    assert running.output(hv, token.task[:10]) == b"two\n"
    assert running.output(hv, token.task, 1) == b"one\n"
    assert running.output(hv, token.task, start=1, most=2) == b"wo"
    assert running.output(hv, token.task, start=99) == b""
    with pytest.raises(NotFound, match=f"no output of {token.task}, attempt 3, is kept here"):
        running.output(hv, token.task, 3)
    for attempt in (0, -1, 99):
        with pytest.raises(NotFound):
            running.output(hv, token.task, attempt)


def test_a_task_without_any_output_has_none(hv):
    task = add(hv, items("a"), now=NOW).ids[0]
    assert running.latest_output(hv, task) == 0
    with pytest.raises(NotFound, match="attempt 0"):
        running.output(hv, task)


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "/etc/passwd", "a/b/c/d/e", "....", ""])
def test_no_name_leads_out_of_the_outputs(hv, name):
    run(hv, "a")
    with pytest.raises(HypervisorError):
        running.output(hv, name)


# Supervising


def test_one_supervisor_is_enough(hv):
    hv.launcher.pids = [42]
    assert supervise(hv) == 42 and hv.launcher.started == 0


def test_a_missing_supervisor_is_started_and_waited_for(hv):
    assert supervise(hv) == 4711 and hv.launcher.started == 1


def test_one_that_is_just_starting_is_waited_for_not_doubled(hv):
    hv.launcher.pids = [0, 0, 42]
    assert supervise(hv) == 42 and hv.launcher.started == 0
