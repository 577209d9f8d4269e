"""Running work as operations: submitting, steering and reporting. The store and the

outputs are real; only the processes are simulated.
"""

from __future__ import annotations

import pytest

from hypervisor.batches import submit
from hypervisor.batches.summary import summary
from hypervisor.core.errors import (
    InvalidInput,
    NotFound,
)
from hypervisor.queue.add import add
from hypervisor.queue.lease import Usage
from hypervisor.queue.pause import INTERRUPTED
from hypervisor.queue.sql import insert, steer
from hypervisor.queue.steer import cancel
from hypervisor.queue.task import NewTask
from hypervisor.runs import control, results
from hypervisor.runs.spec import AgentSpec, RunSpec
from tests.support.intercept import intercept
from tests.support.specs import changed, run_spec
from tests.support.submitted_runs import NOW, SPEC, claim, counts, hv, items, run, settle

__all__ = ["hv"]


# Submitting


def test_a_first_run_adds_everything(hv):
    submitted = run(hv, "a", "b", "c")
    assert counts(submitted) == (3, 0, 0, 0) and submitted.to_do == 3
    assert (submitted.batch.name, submitted.since) == ("b", NOW)
    spec = {"cwd": "/", "command": ["true"], "workspace": "project"}
    assert hv.store.batch("b").spec == spec
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
    states = {task.title: task.state for task in results.reports(hv, again.batch.id, NOW)}
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
    states = {task.title: task.state for task in results.reports(hv, hv.store.batch("b").id)}
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
    monkeypatch.setattr(submit, "SLICE", 2)
    assert run(hv, "a", "b", "a", "c", "b").added == 3
    [token] = claim(hv)
    settle(hv, token, "fail")
    again = run(hv, "a", "b", "a", "c", "b", "a", now=NOW + 1)
    assert (again.added, again.retried, again.already_done) == (0, 1, 0)
    assert summary(hv, "b", NOW).states == {"active": 3}


def test_someone_else_may_bring_a_failed_task_back_at_the_same_time(hv, monkeypatch):
    run(hv, "a", "b")
    for token in claim(hv, limit=2):
        settle(hv, token, "fail")
    came: list[str] = []

    def too_late(reopen, tasks, *more):
        if not came:
            came.append(tasks[0])
            reopen(came, *more)
        return reopen(tasks, *more)

    intercept(monkeypatch, hv.store, steer.reopen_all, too_late)
    again = run(hv, "a", "b", now=NOW + 1)
    assert again.to_do == 2 and len(came) == 1 and counts(again) == (0, 1, 1, 0)
    assert hv.store.stats(again.batch.id, NOW).states["active"] == 2


def test_a_changed_command_is_for_the_same_batch(hv):
    first = run(hv, "a")
    second = run(hv, "a", spec=changed(SPEC, command=("false",), workers=3))
    assert second.batch.id == first.batch.id
    spec = {"cwd": "/", "command": ["false"], "workers": 3, "workspace": "project"}
    assert hv.store.batch("b").spec == spec
    assert [event.kind for event in hv.store.events(0, 99)].count("declare") == 2


def test_running_again_ends_the_pause_of_an_interrupted_batch_but_no_other(hv):
    batch = run(hv, "a").batch
    control.pause(hv, batch="b", reason=INTERRUPTED, now=NOW)
    control.pause(hv, type="x", now=NOW)
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

    def counted(add, part, *more, **options):
        calls.append((len(part), read))
        return add(part, *more, **options)

    intercept(monkeypatch, hv.store, insert.add, counted)
    submitted = submit.submit(hv, SPEC, stream(2_501), "b", NOW)
    assert calls == [(100, 100), (1_000, 1_100), (1_000, 2_100), (401, 2_501)]
    assert counts(submitted) == (2_501, 0, 0, 0)
    assert summary(hv, "b", NOW).total == 2_501


def test_those_that_wait_for_others_come_with_them(hv):
    tasks = [NewTask("first", key="first", after=("last",)), *items(*map(str, range(200)), "last")]
    submit.submit(hv, SPEC, tasks, "b", NOW)
    states = {task.title: task.state for task in results.reports(hv, hv.store.batch("b").id, NOW)}
    assert states["first"] == "waiting" and states["last"] == "active"


def test_those_that_wait_for_others_come_with_them_in_a_later_slice_too(hv):
    early, between = items(*map(str, range(150))), items(*map(str, range(200, 2_500)))
    tasks = [*early, NewTask("first", key="first", after=("last",)), *between, *items("last")]
    submit.submit(hv, SPEC, tasks, "b", NOW)
    states = {task.title: task.state for task in results.reports(hv, hv.store.batch("b").id, NOW)}
    assert states["first"] == "waiting" and states["last"] == "active"


def test_a_run_that_was_interrupted_while_submitting_continues(hv, monkeypatch):
    monkeypatch.setattr(submit, "SLICE", 10)

    def interrupted():
        yield from items(*map(str, range(25)))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submit.submit(hv, SPEC, interrupted(), "b", NOW)
    assert counts(run(hv, *map(str, range(30)))) == (10, 0, 20, 0)


def test_items_may_wait_for_items_of_an_earlier_slice(hv, monkeypatch):
    monkeypatch.setattr(submit, "SLICE", 2)
    tasks = [*items("a", "b"), NewTask("c", key="c", after=("a",))]
    submit.submit(hv, SPEC, tasks, "b", NOW)
    states = {task.title: task.state for task in results.reports(hv, hv.store.batch("b").id, NOW)}
    assert states == {"a": "active", "b": "active", "c": "waiting"}


@pytest.mark.parametrize(
    "spec, says",
    [
        (run_spec("/"), "nothing to run"),
        (RunSpec("/", AgentSpec("")), "nothing to run"),
        (changed(SPEC, strategy="wild"), "unknown strategy: use one of auto, parallel"),
        (SPEC._replace(workers=0), "number of workers must be between 1 and"),
        (SPEC._replace(workers=10**9), "number of workers must be between"),
        (SPEC._replace(claim=0), "claim at once must be between 1 and 1,000"),
        (run_spec("/", function="module"), "invalid function 'module'"),
        (run_spec("/", function=":f"), "invalid function ':f'"),
        (run_spec("/", function="m:"), "invalid function 'm:'"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused_before_anything_is_written(hv, spec, says):
    with pytest.raises(InvalidInput, match=says):
        submit.submit(hv, spec, items("a"), "b", NOW)
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
    assert submit.unsuccessful(hv, first) == 3, "one failed, two are still to do"
    for token in claim(hv, limit=2, now=NOW + 2):
        settle(hv, token, "complete", NOW + 3)
    assert submit.unsuccessful(hv, first) == 1
    second = run(hv, "e", now=NOW + 10)
    [token] = claim(hv, now=NOW + 11)
    settle(hv, token, "complete", NOW + 12)
    assert submit.unsuccessful(hv, second) == 0, "a failed in the run before"
    third = run(hv, "a", "f", now=NOW + 20)
    again, other = claim(hv, limit=2, now=NOW + 21)
    settle(hv, again, "fail", NOW + 22)
    settle(hv, other, "block", NOW + 22)
    assert submit.unsuccessful(hv, third) == 2
    assert submit.outcome(hv, third) == {"failed": 1, "blocked": 1}


def test_unsuccessful_counts_what_was_called_off_and_what_waits(hv):
    submitted = run(hv, "a", "b", "c")
    cancel(hv, hv.store.report(submitted.batch.id, "", 1, NOW)[0].id, now=NOW + 1)
    [token] = claim(hv, now=NOW + 1)
    settle(hv, token, "back_off", NOW + 2, retry_at=NOW + 999)
    claim(hv, now=NOW + 2)
    assert submit.unsuccessful(hv, submitted) == 3


def test_unsuccessful_counts_items_that_wait_for_a_person(hv):
    captured, _ = add(
        hv, [NewTask("a", key="a", inbox=True), NewTask("idea", inbox=True)], "b", NOW
    ).ids
    submitted = run(hv, "a", "c", now=NOW + 1)
    [token] = claim(hv, now=NOW + 2)
    settle(hv, token, "complete", NOW + 3)
    assert submit.unsuccessful(hv, submitted) == 1, "an idea that is no item does not count"
    cancel(hv, captured, now=NOW + 4)
    assert submit.unsuccessful(hv, submitted) == 1, "called off since"


def test_the_summary_adds_up(hv):
    run(hv, *"abcd")
    a, b = claim(hv, limit=2)
    settle(hv, a, "back_off", NOW + 1_000, retry_at=NOW + 1_001, usage=Usage(1, 500, 100, 7))
    settle(hv, b, "fail", NOW + 2_000, usage=Usage(3, 250, 4_000, None))
    hv.store.promote_due(NOW + 1_001)
    [again] = claim(hv, now=NOW + 3_000)
    settle(hv, again, "complete", NOW + 3_250, result="fine", usage=Usage(0, 125, 50, 7))
    [going] = claim(hv, now=NOW + 4_000)
    found = summary(hv, "b", NOW + 10_000)
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
    empty = summary(hv, "b", NOW)
    assert (empty.total, empty.succeeded, empty.runtime_seconds) == (0, False, 0.0)
    run(hv, "a", "b")
    one, other = claim(hv, limit=2)
    settle(hv, one, "complete", NOW + 5)
    assert not summary(hv, "b", NOW + 9).succeeded
    settle(hv, other, "complete", NOW + 6)
    found = summary(hv, "b", NOW + 9)
    assert found.succeeded and found.runtime_seconds == 0.006


def test_a_summary_of_nothing_is_not_found(hv):
    with pytest.raises(NotFound, match="no batch named 'x'"):
        summary(hv, "x")


def test_reports_of_many_tasks_come_in_pages(hv, monkeypatch):
    monkeypatch.setattr(results, "PAGE", 3)
    run(hv, *map(str, range(10)))
    assert [t.title for t in summary(hv, "b", NOW).tasks] == [str(n) for n in range(10)]
