"""Steering a run, inspecting it, and starting its supervisor."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import EXIT_CODES, HypervisorError, InvalidInput, NotFound, WrongState
from hypervisor.monitoring.status import attempts, status
from hypervisor.queue.add import add
from hypervisor.queue.pause import Pause
from hypervisor.queue.steer import cancel
from hypervisor.runs import control, results
from hypervisor.runs.supervise import supervise
from tests.support.submitted_runs import (
    HERE,
    NOW,
    STRANGER,
    THERE,
    at_work,
    claim,
    hv,
    items,
    run,
    say,
    settle,
)

__all__ = ["hv"]


# Steering


def test_pausing_and_resuming_by_batch_type_or_everything(hv):
    batch = run(hv, "a").batch.id
    for scope, name, how in (
        ("batch", batch, {"batch": "b"}),
        ("batch", batch, {"batch": batch[:8]}),
        ("type", "task", {"type": "task"}),
        ("all", "", {}),
    ):
        assert control.pause(hv, **how, reason="why", now=NOW) is True
        assert control.pause(hv, **how, now=NOW) is False
        assert hv.store.pauses() == [Pause(scope, name, "why", "me", NOW)]
        assert claim(hv) == []
        assert control.resume(hv, **how, now=NOW) is True
        assert control.resume(hv, **how, now=NOW) is False
    assert len(claim(hv)) == 1


@pytest.mark.parametrize(
    "how, error, says",
    [
        ({"batch": "b", "type": "x"}, InvalidInput, "a batch or a type, not both"),
        ({"batch": "nope"}, NotFound, "no batch named 'nope'"),
        ({"type": "two words"}, InvalidInput, "the type 'two words' must not contain spaces"),
        ({"type": ""}, InvalidInput, "the type is empty"),
    ],
)
def test_a_pause_of_nonsense_is_refused(hv, how, error, says):
    run(hv, "a")
    for verb in (control.pause, control.resume):
        with pytest.raises(error, match=says):
            verb(hv, **how)
    assert hv.store.pauses() == []


def test_a_pause_takes_any_reason_that_is_text(hv):
    with pytest.raises(InvalidInput, match="the reason contains a NUL"):
        control.pause(hv, reason="a\0b")
    assert control.pause(hv, reason="ü\n" * 10)


def test_scaling_all_or_a_batch(hv):
    batch = run(hv, "a").batch.id
    control.scale(hv, 3, now=NOW)
    control.scale(hv, 0, batch="b", now=NOW)
    assert hv.store.scaled_workers() == 3 and hv.store.scaled_workers(batch) == 0
    control.scale(hv, None, now=NOW)
    assert hv.store.scaled_workers() is None and hv.store.scaled_workers(batch) == 0


@pytest.mark.parametrize("workers", [-1, 10_001, True, "3", 1.5])
def test_scaling_to_nonsense_is_refused(hv, workers):
    with pytest.raises(InvalidInput, match="the number of workers must be"):
        control.scale(hv, workers)
    assert hv.store.scaled_workers() is None


def test_scaling_an_unknown_batch_is_refused(hv):
    with pytest.raises(NotFound, match="no batch named 'x'"):
        control.scale(hv, 3, batch="x")


@pytest.mark.parametrize("retry, after", [(False, "fail"), (True, "release")])
def test_killing_asks_the_worker_to_stop(hv, retry, after):
    batch = run(hv, "a").batch.id
    [token] = claim(hv, at_work(hv, batch))
    assert control.kill(hv, token.task[:10], "too loud", retry, NOW) == (token.task, "stopping")
    [stop] = hv.store.stops([token.task])
    assert (stop.next, stop.reason, stop.actor) == (after, "killed by me: too loud", "me")
    control.kill(hv, token.task, retry=retry, now=NOW)
    assert [s.reason for s in hv.store.stops([token.task])] == ["killed by me"]
    assert hv.store.task(token.task).state == "in_progress"


def test_killing_what_others_claimed_or_what_does_not_run_is_refused(hv):
    run(hv, "a", "b", "c")
    mine, done = claim(hv, STRANGER, 2)
    settle(hv, done, "complete")
    waiting = hv.store.report(hv.store.batch("b").id, "", 9, NOW)[2].id
    before = hv.store.events(0, 99)
    with pytest.raises(WrongState, match=r"did not start.*; `hv cancel \w+` or"):
        control.kill(hv, mine.task)
    with pytest.raises(WrongState, match=f"{done.task} is done, not running"):
        control.kill(hv, done.task)
    with pytest.raises(WrongState, match="is ready, not running"):
        control.kill(hv, waiting)
    with pytest.raises(NotFound):
        control.kill(hv, "zzzzzzzz")
    with pytest.raises(InvalidInput):
        control.kill(hv, mine.task, "a\0b")
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
    assert control.stop_batch(hv, "b", "enough", NOW) == 3
    stops = {stop.task: stop.next for stop in hv.store.stops([one.task, two.task, three.task])}
    assert stops == {one.task: "release", two.task: "cancel", three.task: "release"}
    assert [s.reason for s in hv.store.stops([one.task])] == ["stopped by me: enough"]
    assert hv.store.stops([elsewhere.task]) == []
    assert control.stop_batch(hv, "other") == 1


# Looking


def test_the_status_of_a_batch_and_of_everything(hv):
    batch = run(hv, "a", "b").batch
    run(hv, "c", name="other")
    control.pause(hv, batch="other", now=NOW)
    control.pause(hv, type="x", now=NOW)
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


def test_attempts_are_reported_with_memory_and_last_line_where_this_host_knows(hv):
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
    assert results.latest_output(hv, token.task) == 2
    assert results.output(hv, token.task[:10]) == b"two\n"
    assert results.output(hv, token.task, 1) == b"one\n"
    assert results.output(hv, token.task, start=1, most=2) == b"wo"
    assert results.output(hv, token.task, start=99) == b""
    with pytest.raises(NotFound, match=f"no output stored here for {token.task}, attempt 3"):
        results.output(hv, token.task, 3)
    for attempt in (0, -1, 99):
        with pytest.raises(NotFound):
            results.output(hv, token.task, attempt)


def test_a_task_without_any_output_has_none(hv):
    task = add(hv, items("a"), now=NOW).ids[0]
    assert results.latest_output(hv, task) == 0
    with pytest.raises(NotFound, match="attempt 0"):
        results.output(hv, task)


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "/etc/passwd", "a/b/c/d/e", "....", ""])
def test_no_name_leads_out_of_the_outputs(hv, name):
    run(hv, "a")
    with pytest.raises(HypervisorError):
        results.output(hv, name)


# Supervising


def test_one_supervisor_is_enough(hv):
    hv.launcher.pids = [42]
    assert supervise(hv) == 42 and hv.launcher.started == 0


def test_a_missing_supervisor_is_started_and_waited_for(hv):
    assert supervise(hv) == 4711 and hv.launcher.started == 1


def test_one_that_does_not_come_up_is_not_a_fault_of_the_request(hv, monkeypatch):
    monkeypatch.setattr("hypervisor.runs.supervise.PATIENCE", 0.02)
    monkeypatch.setattr(hv.launcher, "start_supervisor", lambda stay: None)
    with pytest.raises(HypervisorError, match="did not start") as raised:
        supervise(hv)
    assert raised.value.code == "supervisor_failed"
    assert EXIT_CODES[raised.value.code] != EXIT_CODES["invalid_input"]
    assert hv.launcher.log in str(raised.value)


def test_one_that_is_just_starting_is_waited_for_not_doubled(hv):
    hv.launcher.pids = [0, 0, 42]
    assert supervise(hv) == 42 and hv.launcher.started == 0
