"""Claims from many lanes: the same order and the same limits as from a few, on both databases."""

from __future__ import annotations

import pytest

from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import ClaimRequest, parse_token
from hypervisor.queue.pause import Pause
from hypervisor.queue.sql import picking
from hypervisor.queue.sql.lanes import lane_book
from hypervisor.queue.task import NewTask
from tests.queue.test_fast_path import go_on
from tests.support.given import ANN, BOB, LEASE, NOW, claim_all, titles

MANY = 3 * picking.MAX_TRIED
PRIORITIES = ("low", "medium", "high")


def task(number, **more):
    return NewTask(str(number), type=f"type {number % MANY}", **more)


def turns(ledger, **wanted):
    """The titles of all tasks, completed and claimed one by one."""
    request = ClaimRequest(ANN, 1, LEASE, ClaimFilter(**wanted))
    leases, found = ledger.claim(request, NOW), []
    while leases:
        found += titles(leases)
        leases = go_on(ledger, parse_token(leases[0].token), request=request)[1]
    return found


@pytest.mark.parametrize("take", [claim_all, turns])
def test_the_order_is_the_same(ledger, add, take):
    add(*[task(n, priority=PRIORITIES[n % 3]) for n in range(2 * MANY)])
    low, medium, high = ([str(n) for n in range(k, 2 * MANY, 3)] for k in range(3))
    assert take(ledger) == high + medium + low


@pytest.mark.parametrize("take", [claim_all, turns])
@pytest.mark.parametrize("in_front", [1, picking.MAX_SKIPPED, 3 * picking.MAX_SKIPPED])
def test_tasks_for_others_are_skipped(ledger, add, take, in_front):
    add(*[task(n, requires=("gpu",)) for n in range(in_front)])
    add(*map(task, range(1_000, 1_000 + MANY)), at=NOW + 1)
    assert take(ledger) == [str(n) for n in range(1_000, 1_000 + MANY)]
    assert take(ledger, capabilities=("gpu",)) == [str(n) for n in range(in_front)]


def test_several_at_once_are_the_best(ledger, add):
    add(*[task(n, requires=("gpu",) if n % 3 else ()) for n in range(3 * MANY)])
    expected = [str(n) for n in range(0, 3 * MANY, 3)]
    first = ledger.claim(ClaimRequest(ANN, 10, LEASE), NOW)
    second = ledger.claim(ClaimRequest(BOB, 2 * MANY, LEASE), NOW)
    assert (titles(first), titles(second)) == (expected[:10], expected[10:])


def test_a_paused_lane_is_left_out_at_once(store, ledger, add):
    other = store.open()
    add(*map(task, range(MANY)))
    [lease] = ledger.claim(ClaimRequest(ANN, 1, LEASE), NOW)
    other.pause(Pause("type", "type 1", "", "me", NOW), NOW)
    _, [lease] = go_on(ledger, parse_token(lease.token))
    assert lease.task.title == "2"
    other.resume(Pause("type", "type 1", "", "me", NOW), NOW)
    _, [lease] = go_on(ledger, parse_token(lease.token))
    assert lease.task.title == "1"
    other.close()


@pytest.mark.parametrize("take", [claim_all, turns])
def test_a_key_is_respected_in_a_lane_that_is_new(store, ledger, add, take):
    other = store.open()
    add(*map(task, range(MANY)))
    holders = ledger.claim(ClaimRequest(BOB, 1, LEASE), NOW)
    keyed = [NewTask(title, priority="high", exclusive=("k",)) for title in ("first", "second")]
    other.add(keyed, None, "me", NOW)
    holders += other.claim(ClaimRequest(BOB, 1, LEASE), NOW)
    assert titles(holders) == ["0", "first"]
    assert take(ledger) == [str(n) for n in range(1, MANY)]
    other.close()


def test_each_task_goes_to_one_of_two(store, ledger, add):
    other = store.open()
    add(*map(task, range(2 * MANY)))
    found = []
    for _ in range(MANY):
        for one, worker in ((ledger, ANN), (other, BOB)):
            found += titles(one.claim(ClaimRequest(worker, 1, LEASE), NOW))
    assert found == [str(n) for n in range(2 * MANY)]
    other.close()


def test_what_another_is_just_claiming_is_not_waited_for(store, ledger, add):
    if store.kind != "postgres":
        pytest.skip("on SQLite one process writes at a time")
    other = store.open()
    add(*[task(n, requires=("gpu",) if n == 1 else ()) for n in range(MANY)])

    def claiming(session):
        lane_book(session).refresh(session)
        picked = picking.pick(session, ClaimRequest(BOB, 2, LEASE))
        return [row[1] for row in picked], titles(ledger.claim(ClaimRequest(ANN, 2, LEASE), NOW))

    assert other._db.write(claiming) == (["0", "2"], ["3", "4"])
    other.close()


def test_with_keys_in_any_lane_the_keys_are_locked_first(store, ledger, add, monkeypatch):
    add(*map(task, range(MANY)))
    add(NewTask("keyed", priority="high", exclusive=("k",)))

    def claiming(session):
        locked = []
        monkeypatch.setattr(type(session), "lock", lambda session, name: locked.append(name))
        lane_book(session).refresh(session)
        return [row[1] for row in picking.pick(session, ClaimRequest(ANN, 1, LEASE))], locked

    assert ledger._db.write(claiming) == (["keyed"], ["keys"])
