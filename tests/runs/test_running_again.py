"""Running a batch again, and its totals, which are computed by the store."""

from __future__ import annotations

import pytest

from hypervisor.batches import submit
from hypervisor.batches.summary import summary
from hypervisor.core.errors import BatchConflict, BatchPaused, DependencyCycle
from hypervisor.queue.lease import Usage
from hypervisor.queue.pause import INTERRUPTED, Pause
from hypervisor.queue.task import NewTask
from hypervisor.runs import control, results
from hypervisor.runs.supervise import supervise
from tests.support.specs import changed
from tests.support.submitted_runs import (
    NOW,
    SPEC,
    THERE,
    at_work,
    claim,
    counts,
    hv,
    items,
    run,
    settle,
)

__all__ = ["hv"]  # the fixture


@pytest.mark.parametrize("at", [NOW + 10, NOW + 20])
def test_what_ends_while_it_is_added_was_not_done_before(hv, at):
    batch = run(hv, "a", "b", "c").batch.id
    at_work(hv, batch)
    first, second = claim(hv, limit=2)
    settle(hv, first, "complete", NOW + 1)

    def added():
        settle(hv, second, "complete", at)  # a worker is still at it
        yield from items("a", "b", "c")

    again = submit.submit(hv, SPEC, added(), "b", NOW + 10)
    assert counts(again) == (0, 0, 2, 1) and again.to_do == 2
    ended = submit.outcome(hv, again)
    assert ended["done"] + again.already_done == 2  # nothing is reported twice


def test_a_cycle_changes_nothing_of_the_batch(hv):
    circle = [NewTask("x", key="x", after=("y",)), NewTask("y", key="y", after=("x",))]
    with pytest.raises(DependencyCycle):
        submit.submit(hv, SPEC, circle, "new", NOW, together=True)
    assert not hv.store.batches(10)
    batch = run(hv, "a").batch
    control.pause(hv, batch.id, reason=INTERRUPTED)
    with pytest.raises(DependencyCycle):
        submit.submit(hv, SPEC._replace(workers=7), circle, batch.name, NOW, together=True)
    assert hv.store.batch(batch.id) == batch and hv.store.pauses()


def test_the_sums_are_those_of_the_tasks(hv):
    batch = run(hv, "a", "b", "c", "d", "e").batch.id
    at_work(hv, batch)
    answers = [{"category": "x"}, None, {"items": [{"category": "y"}, {}]}]
    for number, (token, result) in enumerate(zip(claim(hv, limit=3), answers, strict=True)):
        usage = Usage(0, 100 + number, 10 * number, 0)
        settle(hv, token, "complete", NOW + 1_000 * number, result=result, usage=usage)
    (failed,) = claim(hv, limit=1, now=NOW + 50)
    settle(hv, failed, "fail", NOW + 60)
    found = summary(hv, batch, NOW + 5_000)
    tasks = list(results.reports(hv, batch, NOW + 5_000))
    assert found.tasks == tuple(tasks) and found.total == 5
    assert found.states == {"active": 1, "done": 3, "failed": 1}
    assert found.cpu_seconds == pytest.approx(sum(each.cpu_seconds for each in tasks))
    assert found.attempt_seconds == pytest.approx(sum(each.seconds for each in tasks))
    assert found.peak_bytes == max(each.peak_bytes for each in tasks) == 20 * 1024
    assert found.attempts == sum(each.attempts for each in tasks) == 4
    assert found.categories == {"(none)": 2, "x": 1, "y": 1}
    assert found.runtime_seconds == 2.0 and not found.succeeded


def test_a_summary_without_tasks_reads_none(hv, monkeypatch):
    batch = run(hv, "a", "b").batch.id
    monkeypatch.setattr(type(hv.store), "report", None)
    assert summary(hv, batch, tasks=False).total == 2


def test_behind_a_supervisor_that_was_asked_to_end_the_next_one_waits(hv):
    hv.launcher.pids, hv.launcher.leaves = [42], True
    assert supervise(hv) == 42 and hv.launcher.started == 1


@pytest.mark.parametrize(
    "change", [{"command": ("false",)}, {"stdin": "item"}, {"cwd": "/tmp"}, {"shell": True}]
)
def test_another_command_for_what_is_done_is_refused(hv, change):
    run(hv, "a", "b")
    (token,) = claim(hv)
    settle(hv, token, "complete")
    before = hv.store.batch("b")
    spec = changed(SPEC, workers=3, **change)
    with pytest.raises(BatchConflict, match="--again"):
        run(hv, "a", "b", spec=spec)
    assert hv.store.batch("b") == before
    unfinished = submit.submit(hv, spec, items("a", "b"), "b", NOW + 1, rerun="unfinished")
    assert counts(unfinished) == (0, 0, 1, 1)
    everything = submit.submit(hv, SPEC, items("a", "b"), "b", NOW + 1, rerun="all")
    assert counts(everything) == (0, 0, 1, 0) and everything.redone == 1


@pytest.mark.parametrize("rerun", ["changed", "all", "unfinished"])
def test_another_command_while_tasks_run_is_refused(hv, rerun):
    """They would run with the old command, and count as done with the new one."""
    run(hv, "a", "b")
    (token,) = claim(hv, THERE)
    before = hv.store.batch("b")
    spec = changed(SPEC, command=("false",))
    with pytest.raises(BatchConflict, match=r"another command \(`true`\): 1 task of it is running"):
        submit.submit(hv, spec, items("a", "b"), "b", NOW + 1, rerun=rerun)
    assert hv.store.batch("b") == before
    submit.submit(hv, SPEC._replace(workers=3), items("a", "b"), "b", NOW + 1, rerun=rerun)
    settle(hv, token, "fail")
    assert submit.submit(hv, spec, items("a", "b"), "b", NOW + 2, rerun=rerun).retried == 1


def test_a_pause_that_a_person_made_stays(hv):
    batch = run(hv, "a").batch
    control.pause(hv, batch="b", reason="lunch", now=NOW)
    with pytest.raises(BatchPaused, match=r"paused by me \(lunch\).*hv resume b") as refused:
        run(hv, "a", "new", now=NOW + 1)
    assert refused.value.batch == "b" and hv.store.stats(batch.id, NOW).total == 1
    assert [pause.reason for pause in hv.store.pauses()] == ["lunch"]
    for actor in ("worker-7", "supervisor"):
        control.resume(hv, batch="b")
        hv.store.pause(Pause("batch", batch.id, "the budget is spent", actor, 0), NOW)
        run(hv, "a", now=NOW + 1)
        assert not hv.store.pauses()
