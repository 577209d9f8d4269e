"""Running a batch again, and what is added up of it: by the store, not by whoever asks."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import DependencyCycle
from hypervisor.queue.lease import Usage
from hypervisor.queue.task import NewTask
from hypervisor.runs import run as running
from hypervisor.runs.supervise import supervise
from tests.runs.test_run import (
    NOW,
    SPEC,
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

    again = running.run(hv, SPEC, added(), "b", NOW + 10)
    assert counts(again) == (0, 0, 2, 1) and again.to_do == 2
    ended = running.outcome(hv, again)
    assert ended["done"] + again.already_done == 2  # nothing is told twice


def test_a_cycle_changes_nothing_of_the_batch(hv):
    circle = [NewTask("x", key="x", after=("y",)), NewTask("y", key="y", after=("x",))]
    with pytest.raises(DependencyCycle):
        running.run(hv, SPEC, circle, "new", NOW, together=True)
    assert not hv.store.batches(10)
    batch = run(hv, "a").batch
    running.pause(hv, batch.id)
    with pytest.raises(DependencyCycle):
        running.run(hv, SPEC._replace(workers=7), circle, batch.name, NOW, together=True)
    assert hv.store.batch(batch.id) == batch and hv.store.pauses()


def test_the_sums_are_those_of_the_tasks(hv):
    batch = run(hv, "a", "b", "c", "d", "e").batch.id
    at_work(hv, batch)
    results = [{"category": "x"}, None, {"items": [{"category": "y"}, {}]}]
    for number, (token, result) in enumerate(zip(claim(hv, limit=3), results, strict=True)):
        usage = Usage(0, 100 + number, 10 * number, 0)
        settle(hv, token, "complete", NOW + 1_000 * number, result=result, usage=usage)
    (failed,) = claim(hv, limit=1, now=NOW + 50)
    settle(hv, failed, "fail", NOW + 60)
    found = running.summary(hv, batch, NOW + 5_000)
    tasks = list(running.reports(hv, batch, NOW + 5_000))
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
    assert running.summary(hv, batch, tasks=False).total == 2


def test_behind_a_supervisor_that_was_asked_to_end_the_next_one_waits(hv):
    hv.launcher.pids, hv.launcher.leaves = [42], True
    assert supervise(hv) == 42 and hv.launcher.started == 1
