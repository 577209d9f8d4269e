"""The worker attempt by attempt: a real store, and scripted commands."""

from __future__ import annotations

import errno

import pytest

from hypervisor.core.errors import StoreUnavailable
from hypervisor.queue.attempt import Ended
from hypervisor.queue.settle import settle_and_claim
from hypervisor.queue.sql import event_log
from hypervisor.queue.task import NewTask, TaskFilter
from hypervisor.resources.limits import Limits
from hypervisor.runs import settlement as module
from hypervisor.runs import sql
from hypervisor.runs.config import Settings
from hypervisor.runs.spec import spec_data
from tests.support.benches import WELL, Bench, Journal, closed_after
from tests.support.intercept import intercept

MB = 1 << 20
BADLY = Ended(7, None, 0.0, 0)


@pytest.fixture
def bench(tmp_path):
    with closed_after(lambda number, **how: Bench(tmp_path, **how)) as maker:
        yield maker


def test_does_what_there_is_and_goes(bench):
    bench = bench(claim=2)
    for text in "abc":
        bench.item(text)
    bench.work()
    assert bench.outcomes() == {"a": ["done"], "b": ["done"], "c": ["done"]}
    assert bench.store.at_work("boot") == []
    assert bench.log[-2:] == ["close", "journal remove"]


def test_writes_down_what_it_does_before_it_does_it(bench):
    bench = bench(claim=1)
    bench.item("a")
    bench.work()
    first = bench.log.index("journal clear")
    begun = bench.log.index("journal start")
    assert first < begun < bench.log.index("start a") < bench.log.index("journal complete")
    assert "journal clear" in bench.log[bench.log.index("journal complete") :]


def test_is_known_to_the_store_before_it_keeps_a_journal(bench):
    """The journal of an unknown worker would stay forever."""
    bench = bench()
    known = []

    class Watching(Journal):
        def clear(self):
            known.append([each.worker.id for each in bench.store.at_work("boot")])

    bench.worker(Watching([])).run()
    assert known[0] == ["me"]


def test_tells_what_ended_and_takes_as_much_again_in_one_transaction(bench, monkeypatch):
    bench = bench()
    worker = bench.worker()

    def at_last():
        worker.settlement.flushed = -1.0
        return WELL

    for text in "abc":
        bench.item(text, at_last)
    told = []

    def watched(store, verdicts, request, now):
        told.append((len(verdicts), request.limit if request else 0))
        return settle_and_claim(store, verdicts, request, now)

    monkeypatch.setattr(module, "settle_and_claim", watched)
    worker.run()
    assert bench.outcomes() == {"a": ["done"], "b": ["done"], "c": ["done"]}
    assert told[:4] == [(0, 1), (1, 1), (1, 1), (1, 1)]


def test_takes_nothing_more_once_the_batch_is_declared_otherwise(bench):
    bench = bench()
    worker = bench.worker()

    def meanwhile():
        bench.store.declare("b", spec_data(bench.described(workers=1)), "t")
        worker.settlement.flushed = -1.0
        return WELL

    bench.item("a", meanwhile)
    bench.item("b")
    worker.run()
    assert bench.outcomes() == {"a": ["done"], "b": []}


def test_continues_with_a_batch_that_has_redundant_fields(bench):
    """As earlier versions declared it: otherwise no worker could run it."""
    bench = bench()
    bench.store.declare("b", {**spec_data(bench.spec), "python": "python3"}, "t")
    bench.item("a")
    bench.work()
    assert bench.outcomes() == {"a": ["done"]}


def test_takes_nothing_from_a_batch_that_a_later_version_declared(bench):
    bench = bench()
    bench.store.declare("b", {**spec_data(bench.spec), "teleport": True}, "t")
    bench.item("a")
    bench.work()
    assert bench.outcomes() == {"a": []}


def test_what_an_attempt_cost_is_kept(bench):
    bench = bench()
    task = bench.item("a")
    bench.work()
    (attempt,) = bench.store.detail(task).attempts
    assert (attempt.exit_code, attempt.cpu_ms, attempt.peak_kb) == (0, 250, 12 * 1024)
    assert bench.store.memory_peak("run") == 12 * MB


def test_a_failure_is_final_or_tried_again_later(bench):
    bench = bench()
    final = bench.item("final", BADLY)
    again = bench.item("again", BADLY, retries=1)
    bench.work()
    assert bench.outcomes() == {"final": ["failed"], "again": ["failed"]}
    assert bench.store.task(final).state == "failed"
    assert bench.store.task(final).reason == "exit code 7"
    task = bench.store.task(again)
    assert task.state == "waiting" and task.start_at and task.start_at > bench.store.now()


def test_what_was_claimed_with_a_long_one_goes_back(bench):
    """The other tasks do not wait for it; the release costs them nothing."""
    bench = bench(claim=4)

    def in_the_middle():
        assert states(bench) == {"long": "in_progress", "b": "active", "c": "active"}

    bench.item("long", None, lambda: in_the_middle() or WELL)
    bench.item("b")
    bench.item("c")
    bench.work()
    assert bench.outcomes() == {
        "long": ["done"],
        "b": ["released", "done"],
        "c": ["released", "done"],
    }
    assert "journal leader 77" in bench.log and "settle in" in bench.log


def test_leftovers_are_reported(bench):
    bench = bench()
    bench.item("a")
    bench.runner.left = 3
    bench.work()
    (event,) = bench.events("leftovers")
    assert event.data == {"processes": 3, "message": "stopped 3 processes left running"}


def test_trouble_with_the_store_does_not_repeat_what_has_ended(bench, monkeypatch):
    """Optional writes must not come between the end of an attempt and its journal line."""
    bench = bench(claim=1)
    bench.item("a")
    bench.runner.left = 1

    def away(*_, **__):
        raise StoreUnavailable("the disk is full.")

    intercept(monkeypatch, bench.store, sql.set_memory_peak, away)
    intercept(monkeypatch, bench.store, event_log.note, away)
    bench.work()
    assert "journal complete" in bench.log
    assert bench.outcomes() == {"a": ["done"]}


def test_what_would_fail_all_alike_pauses_the_batch(bench):
    bench = bench(claim=2)
    task = bench.item("a", Ended(None, None, 0.0, 0, error="no such module"))
    bench.item("b")
    bench.runner.fatal_error = "no such module"
    bench.work()
    assert bench.began() == ["a"]
    assert states(bench) == {"a": "active", "b": "active"}
    assert bench.store.task(task).failures == 0
    assert [pause.reason for pause in bench.store.pauses()] == ["no such module"]


class TestFailFast:
    @pytest.mark.parametrize("claim", [1, 4])
    def test_starts_nothing_more(self, bench, claim):
        bench = bench(claim=claim, fail_fast=True)
        for text in "abcdefgh":
            bench.item(text, BADLY if text == "b" else WELL)
        bench.work()
        assert bench.began() == ["a", "b"]
        assert states(bench)["b"] == "failed"
        (pause,) = bench.store.pauses()
        assert pause.reason.startswith("fail-fast: ") and "exit code 7" in pause.reason
        assert set(states(bench).values()) == {"done", "failed", "active"}

    def test_not_while_it_may_still_be_tried_again(self, bench):
        bench = bench(fail_fast=True)
        bench.item("a", BADLY, retries=1)
        bench.item("b")
        bench.work()
        assert bench.began() == ["a", "b"] and bench.store.pauses() == []


class TestRefused:
    def test_an_item_that_no_command_fits(self, bench):
        bench = bench()
        bad = bench.store.add([NewTask("bad", type="run", data={"no": "item"})], "b", "t").ids[0]
        bench.item("good")
        bench.work()
        assert states(bench) == {"bad": "failed", "good": "done"}
        assert "no item in its data" in (bench.store.task(bad).reason or "")

    def test_invalid_limits(self, bench):
        """Only the task fails: the worker and its other tasks continue."""
        bench = bench()
        bad = bench.item("bad", None, WELL, data={"limits": {"time": "soon"}})
        bench.item("good")
        bench.work()
        assert states(bench) == {"bad": "failed", "good": "done"}
        assert bench.began() == ["good"]
        assert "invalid duration 'soon'" in (bench.store.task(bad).reason or "")

    def test_trouble_of_the_host_costs_the_task_nothing(self, bench):
        bench = bench(claim=3)
        full = OSError(errno.ENOSPC, "No space left on device")
        first = bench.item("a", full)
        bench.item("b")
        bench.work()
        assert states(bench) == {"a": "active", "b": "active"}
        task = bench.store.task(first)
        assert (task.failures, task.crashes) == (0, 0)
        (event,) = bench.events("trouble")
        assert event.data["message"] == "cannot start on this host: No space left on device"


class TestStopped:
    @pytest.mark.parametrize(
        ("after", "state"), [("cancel", "cancelled"), ("fail", "failed"), ("release", "active")]
    )
    def test_while_it_runs(self, bench, after, state):
        bench = bench()

        def ask():
            bench.store.ask_stop(task, after, "enough", "x")
            bench.runner.asked = "drain"  # so that it is not taken up again

        task: str = bench.item("a", ask)
        bench.work()
        assert bench.store.task(task).state == state
        assert bench.log.count("stop") == 1
        assert bench.store.task(task).reason == "enough"

    @pytest.mark.parametrize(("after", "state"), [("cancel", "cancelled"), ("fail", "failed")])
    def test_while_it_was_only_claimed(self, bench, after, state):
        """It would go back with the others: instead, the request is carried out."""
        bench = bench(claim=3)

        def ask():
            bench.store.ask_stop(task, after, "enough", "x")

        bench.item("long", ask, WELL)
        task: str = bench.item("b")
        bench.item("c")
        bench.work()
        assert bench.began() == ["long", "c"]
        assert bench.store.task(task).state == state
        assert bench.store.task(task).reason == "enough"

    def test_a_worker_that_is_asked_to_stop_puts_it_back(self, bench):
        bench = bench()
        task = bench.item("a", lambda: setattr(bench.runner, "asked", "stop"), WELL)
        bench.work()
        assert bench.outcomes() == {"a": ["released"]}
        assert bench.store.task(task).state == "active"
        assert "stop" in bench.log

    def test_a_worker_that_is_asked_to_drain_finishes_it(self, bench):
        bench = bench(claim=2)
        bench.item("a", lambda: setattr(bench.runner, "asked", "drain"), WELL)
        bench.item("b")
        bench.work()
        assert states(bench) == {"a": "done", "b": "active"}


class TestLimits:
    @pytest.mark.parametrize(("retries", "state"), [(0, "failed"), (1, "waiting")])
    def test_a_limit_is_a_failure(self, bench, retries, state):
        bench = bench(memory=100 * MB)
        bench.runner.memory = 150 * MB
        task = bench.item("a", None, retries=retries)
        bench.work()
        found = bench.store.task(task)
        assert found.state == state
        assert found.reason == "memory limit: 150 MB used, limit 100 MB"
        (event,) = bench.events("overseer")
        assert (event.task, event.data["act"], event.data["limit"]) == (task, "stop", "memory")
        assert bench.store.detail(task).attempts[0].peak_kb == 150 * 1024

    def test_a_limit_holds_though_the_store_is_away(self, bench, monkeypatch):
        bench = bench(memory=100 * MB)
        bench.runner.memory = 150 * MB
        task = bench.item("a", None)

        def away(*_, **__):
            raise StoreUnavailable("away")

        monkeypatch.setattr(bench.store, "note", away)
        bench.work()
        assert bench.store.task(task).reason == "memory limit: 150 MB used, limit 100 MB"

    def test_a_rehearsal_only_tells(self, bench):
        bench = bench(memory=100 * MB, settings=Settings(dry_run=True))
        bench.runner.memory = 150 * MB
        bench.item("a", None, None, WELL)
        bench.work()
        assert states(bench) == {"a": "done"}
        (event,) = bench.events("overseer")
        assert event.data["act"] == "would_stop"

    @pytest.mark.parametrize(
        ("own", "batch", "stops_at"),
        [
            ({}, None, "300 MB"),
            ({}, 200, "200 MB"),
            ({"memory": "100M"}, 200, "100 MB"),
            ({"memory": "off"}, 200, None),
        ],
    )
    def test_of_the_task_over_the_batch_over_the_type(self, bench, own, batch, stops_at):
        settings = Settings(
            limits=Limits(memory=400 * MB), limits_by_type={"run": Limits(memory=300 * MB)}
        )
        bench = bench(settings=settings, memory=None if batch is None else batch * MB)
        bench.runner.memory = 500 * MB
        task = bench.item("a", None, WELL, data={"limits": own} if own else None)
        bench.work()
        reason = bench.store.task(task).reason
        assert reason == (stops_at and f"memory limit: 500 MB used, limit {stops_at}")


def states(bench):
    return {task.title: task.state for task in bench.store.list_tasks(TaskFilter(), 1000)}
