"""A claim that was made although its answer was lost: no task stays claimed without a holder."""

from __future__ import annotations

import pytest

import hypervisor
from hypervisor import NewTask
from hypervisor.core.errors import StoreUnavailable


@pytest.fixture
def hv(store):
    with hypervisor.open(store.where, relaxed=True) as opened:
        yield opened


@pytest.fixture
def lose_next_answer(hv, monkeypatch):
    """Lose the answer of the next write of this store, right after its commit."""

    def lose():
        database = hv.store
        ways = {name: getattr(database, name) for name in ("write", "run")}

        def losing(way):
            def do(*args):
                ways[way](*args)
                for name, really_do in ways.items():
                    monkeypatch.setattr(database, name, really_do)
                raise StoreUnavailable("the answer got lost.")

            return do

        for name in ways:
            monkeypatch.setattr(database, name, losing(name))

    return lose


def attempts(hv, task):
    return [(attempt.number, attempt.outcome) for attempt in hv.show(task).detail.attempts]


def introduced(hv):
    """The worker is known and the fast path installed: the next write is the claim itself."""
    hv.add([NewTask("first"), NewTask("second")])
    (lease,) = hv.claim("worker")
    (lease,) = hv.complete_and_claim([(lease.token, None)], "worker").leases
    hv.complete(lease.token)
    assert hv.claim("worker") == ()


def test_the_next_claim_gives_the_task_back_first(hv, lose_next_answer):
    introduced(hv)
    (task,) = hv.add([NewTask("held")]).ids
    lose_next_answer()
    with pytest.raises(StoreUnavailable):
        hv.claim("worker")
    assert hv.show(task).detail.task.state == "in_progress"

    (lease,) = hv.claim("worker")
    assert (lease.task.id, lease.task.attempts) == (task, 2)
    assert attempts(hv, task) == [(1, "released"), (2, None)]
    assert (lease.task.failures, lease.task.crashes) == (0, 0)
    assert hv.complete(lease.token).state == "done"


def test_another_worker_may_claim_it_then(hv, store, lose_next_answer):
    """A released task may be claimed by any worker, and is released only once."""
    introduced(hv)
    tasks = hv.add([NewTask(f"task {n}") for n in range(3)]).ids
    lose_next_answer()
    with pytest.raises(StoreUnavailable):
        hv.claim("worker", limit=3)
    assert hv.claim("worker", types=["none"]) == ()
    with hypervisor.open(store.where, relaxed=True) as other:
        assert [lease.task.id for lease in other.claim("rival", limit=3)] == list(tasks)
    hv.add([NewTask("first"), NewTask("second")])
    (lease,) = hv.claim("worker")
    (lease,) = hv.complete_and_claim([(lease.token, None)], "worker").leases
    hv.complete(lease.token)
    assert hv.claim("worker") == ()
    assert all(attempts(hv, task) == [(1, "released"), (2, None)] for task in tasks)


def test_the_tasks_finished_in_that_step_stay_finished(hv, lose_next_answer):
    introduced(hv)
    first, second = hv.add([NewTask("one"), NewTask("two")]).ids
    (lease,) = hv.claim("worker")
    lose_next_answer()
    with pytest.raises(StoreUnavailable):
        hv.complete_and_claim([(lease.token, "fine")], "worker")

    turn = hv.complete_and_claim([(lease.token, "again")], "worker")
    assert turn.settled[0].repeated and hv.show(first).detail.task.result == "fine"
    assert [lease.task.id for lease in turn.leases] == [second]
    assert attempts(hv, second) == [(1, "released"), (2, None)]


def test_a_claim_that_was_not_made_costs_nothing(hv, monkeypatch):
    introduced(hv)
    (task,) = hv.add([NewTask("free")]).ids

    def refuse(work, durable=True):
        raise StoreUnavailable("nobody is there.")

    with monkeypatch.context() as patch:
        patch.setattr(hv.store, "write", refuse)
        with pytest.raises(StoreUnavailable):
            hv.claim("worker")
    (lease,) = hv.claim("worker")
    assert (lease.task.id, attempts(hv, task)) == (task, [(1, None)])
