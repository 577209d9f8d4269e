"""Workers on both databases: stop requests, running tasks, ready tasks."""

from __future__ import annotations

import pytest

from hypervisor.queue.lease import ClaimRequest
from hypervisor.queue.pause import Pause
from hypervisor.queue.stop import Stop
from hypervisor.queue.task import NewTask
from hypervisor.runs.spec import ActiveWorker, Ready, Running
from tests.runs.declared_batches import RUNNER, kinds
from tests.support.databases import dump
from tests.support.given import ANN, BOB, LEASE, NOW, claim_all

# Asking a worker to stop


def test_only_what_one_of_our_workers_runs_can_be_asked_to_stop(
    store, ledger, run_batch, worker, claim, settle, add
):
    batch = run_batch("a", "b", "c", "d", name="run")
    ids = [each.id for each in ledger.report(batch, "", 9, NOW)]
    foreign = claim(ANN)
    gone = claim(worker(batch, RUNNER._replace(id="w-gone", pid=108)))
    ledger.retire("w-gone", NOW)
    done = claim(worker(batch))
    settle(done, "complete")
    before = dump(store)
    for task in (foreign.task, gone.task, done.task, ids[3], "0" * 12):
        assert not ledger.ask_stop(task, "cancel", "why", "ann", NOW + 1), task
    assert dump(store) == before
    assert ledger.stops([*ids, "0" * 12]) == []


def test_a_stop_is_told_to_who_asks_and_written_down(ledger, open_ledger, run_batch, worker, claim):
    batch = run_batch("a")
    token = claim(worker(batch))
    since = len(kinds(ledger))
    assert open_ledger().ask_stop(token.task, "fail", "too loud", "ann", NOW + 1)
    assert ledger.stops(["0" * 12, token.task]) == [
        Stop(token.task, token.attempt, "fail", "too loud", "ann")
    ]
    [event] = ledger.events(since, 9)
    assert (event.kind, event.task, event.batch, event.attempt) == ("stop", token.task, batch, 1)
    assert (event.actor, event.at, event.state) == ("ann", NOW + 1, None)
    assert event.data == {"next": "fail", "reason": "too loud"}
    assert ledger.task(token.task).state == "in_progress", "the worker has the last word"


def test_the_last_request_counts_but_a_cancel_stays_a_cancel(ledger, run_batch, worker, claim):
    """The caller was told that the task is being cancelled; it must not come back."""
    token = claim(worker(run_batch("a")))
    for after in ("release", "fail", "cancel"):
        assert ledger.ask_stop(token.task, after, after, "ann", NOW)
        assert [(s.next, s.reason) for s in ledger.stops([token.task])] == [(after, after)]
    for after in ("release", "fail"):
        assert ledger.ask_stop(token.task, after, after, "bob", NOW)
        assert [(s.next, s.actor) for s in ledger.stops([token.task])] == [("cancel", "ann")]


@pytest.mark.parametrize("end", ["release", "reclaim", "take_back", "cancel", "fail"])
def test_a_stop_of_an_old_attempt_is_never_reported(ledger, run_batch, worker, claim, settle, end):
    token = claim(worker(run_batch("a")))
    assert ledger.ask_stop(token.task, "cancel", "old", "ann", NOW)
    if end == "reclaim":
        [holder] = ledger.holders("boot1", NOW)
        ledger.reclaim(holder, "gone", NOW)
    elif end == "take_back":
        ledger.take_back(token.task, "", "ann", NOW)
    elif end == "cancel":
        ledger.cancel(token.task, "", "ann", NOW)
    else:
        settle(token, end, reason="r")
    assert ledger.stops([token.task]) == []
    if end in ("cancel", "fail"):
        ledger.reopen(token.task, "", "ann", NOW)
    assert ledger.stops([token.task]) == []
    again = claim(RUNNER)
    assert again.task == token.task and ledger.stops([token.task]) == []
    assert ledger.ask_stop(token.task, "fail", "new", "ann", NOW)
    assert ledger.stops([token.task]) == [Stop(token.task, 2, "fail", "new", "ann")]


def test_a_stop_can_be_forgotten(ledger, run_batch, worker, claim):
    batch = run_batch("a", "b")
    one, other = claim(worker(batch)), claim(RUNNER)
    for token in (one, other):
        ledger.ask_stop(token.task, "release", "", "ann", NOW)
    ledger.forget_stop(one.task)
    ledger.forget_stop("0" * 12)
    assert [stop.task for stop in ledger.stops([one.task, other.task])] == [other.task]


def test_many_stops_are_told_at_once(ledger, run_batch, worker):
    batch = run_batch(*[f"{n}" for n in range(700)])
    leases = ledger.claim(ClaimRequest(worker(batch), 700, LEASE), NOW)
    tasks = [lease.task.id for lease in leases]
    for task in tasks[::7]:
        ledger.ask_stop(task, "release", "", "ann", NOW)
    assert sorted(stop.task for stop in ledger.stops(tasks)) == sorted(tasks[::7])
    assert ledger.stops([]) == []


# Workers


def test_at_work_are_the_registered_ones_of_this_boot(ledger, open_ledger, run_batch, claim):
    batch = run_batch("a", "b")
    elsewhere = BOB._replace(id="w-far")
    claim(ANN)
    ledger.register(RUNNER, batch, NOW + 1)
    ledger.register(elsewhere, batch, NOW + 2)
    assert open_ledger().at_work("boot1") == [ActiveWorker(RUNNER, batch, NOW + 1)]
    assert ledger.at_work("boot2") == [ActiveWorker(elsewhere, batch, NOW + 2)]
    assert ledger.at_work("boot3") == []
    ledger.retire(RUNNER.id, NOW + 3)
    assert ledger.at_work("boot1") == []
    assert len(ledger.at_work("boot2")) == 1


def test_a_worker_that_has_claimed_can_register_and_change_its_batch(ledger, run_batch, claim):
    first, second = run_batch("a", name="first"), run_batch("b", name="second")
    claim(RUNNER)
    assert ledger.at_work("boot1") == []
    ledger.register(RUNNER, first, NOW + 1)
    ledger.register(RUNNER, second, NOW + 2)
    assert [(each.worker, each.batch) for each in ledger.at_work("boot1")] == [(RUNNER, second)]
    claim(RUNNER)
    assert [each.batch for each in ledger.at_work("boot1")] == [second], "a claim changes nothing"


def test_a_worker_that_registers_again_is_at_work_again(ledger, run_batch, claim):
    batch = run_batch("a")
    ledger.register(RUNNER, batch, NOW)
    ledger.retire(RUNNER.id, NOW)
    ledger.register(RUNNER, batch, NOW + 1)
    assert [each.worker for each in ledger.at_work("boot1")] == [RUNNER]
    assert ledger.ask_stop(claim(RUNNER).task, "fail", "", "ann", NOW)


# What is ready, what runs


def test_ready_are_the_run_batches_best_first(ledger, add, run_batch):
    add(NewTask("not run", priority="critical"), batch="plain")
    add(NewTask("no batch", priority="critical"))
    old = run_batch("1", NewTask("2", type="x"), NewTask("3", priority="low"), name="old")
    urgent = run_batch(NewTask("4", type="y", priority="high"), name="urgent", at=NOW + 1)
    run_batch(NewTask("idea", inbox=True), NewTask("later", start_at=NOW + 9), name="waiting")
    run_batch(name="empty")
    ready = ledger.ready()
    assert [(r.batch, r.priority, r.types, r.tasks) for r in ready] == [
        (urgent, "high", ("y",), 1),
        (old, "medium", ("task", "x"), 3),
    ]
    assert [r.rank for r in ready] == sorted(r.rank for r in ready)
    assert claim_all(ledger, batch=urgent) == ["4"]
    assert [r.batch for r in ledger.ready()] == [old]


def test_ready_is_what_a_worker_with_these_capabilities_could_claim(ledger, run_batch):
    batch = run_batch("a", NewTask("b", requires=("gpu",)), NewTask("c", assignee="ann"))
    assert [r.tasks for r in ledger.ready()] == [1]
    assert [r.tasks for r in ledger.ready(("gpu", "net"))] == [2]
    claim_all(ledger, batch=batch, assignee="")
    assert ledger.ready() == [] and len(ledger.ready(("gpu",))) == 1


def test_ready_counts_no_further_than_it_has_to(ledger, run_batch):
    batch = run_batch(*[f"{n}" for n in range(150)], *[NewTask("x", type="x")] * 5)
    [ready] = ledger.ready()
    assert ready == Ready(batch, ready.rank, "medium", ("task", "x"), 105)


def test_ready_leaves_out_what_is_paused_lane_by_lane(ledger, run_batch):
    batch = run_batch(NewTask("1", type="x"), NewTask("2", type="y"), NewTask("3", type="y"))
    ledger.pause(Pause("type", "x", "", "ann", NOW), NOW)
    assert [(r.batch, r.types, r.tasks) for r in ledger.ready()] == [(batch, ("y",), 2)]
    ledger.pause(Pause("batch", batch, "", "ann", NOW), NOW)
    assert ledger.ready() == []
    ledger.resume(Pause("type", "x", "", "ann", NOW), NOW)
    assert ledger.ready() == []


def test_running_tells_who_works_on_what_since_when(ledger, add, run_batch, claim, settle):
    batch = run_batch(NewTask("a", type="x", priority="high"), "b")
    add("elsewhere")
    first = claim(RUNNER, NOW + 1, types=("x",))
    second = claim(ANN, NOW + 3, batch=batch)
    third = claim(BOB, NOW + 2, batch="")
    rows = ledger.running(None, 9)
    assert rows == [
        Running(first.task, "a", "x", "high", batch, 1, NOW + 1, RUNNER),
        Running(third.task, "elsewhere", "task", "medium", "", 1, NOW + 2, BOB),
        Running(second.task, "b", "task", "medium", batch, 1, NOW + 3, ANN),
    ]
    assert ledger.running(batch, 9) == [rows[0], rows[2]]
    assert ledger.running(None, 2) == rows[:2]
    assert ledger.running("0" * 12, 9) == []
    settle(first, "release")
    again = claim(BOB, NOW + 9, types=("x",))
    assert [(r.task, r.attempt, r.worker) for r in ledger.running(None, 9)][-1] == (
        again.task,
        2,
        BOB,
    )
