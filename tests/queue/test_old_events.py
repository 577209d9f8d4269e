"""Old events are deleted, and nothing else notices, on both databases."""

from __future__ import annotations

import pytest

from hypervisor.queue import old_events
from hypervisor.queue.context import Context
from hypervisor.queue.old_events import delete_old_events
from hypervisor.queue.queries import last_events
from hypervisor.queue.sql import counts, queries
from hypervisor.queue.sql.old_events import delete_events
from hypervisor.queue.task import NewTask
from hypervisor.resources.host import LocalHost
from tests.support.given import NOW

MANY = 10**9


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(old_events, "KEPT", 3)
    monkeypatch.setattr(old_events, "SLICE", 4)


@pytest.fixture
def hv(ledger):
    """Twenty tasks, each added a second after the one before."""
    for n in range(20):
        ledger.add([NewTask(str(n))], None, "me", NOW + n * 1000)
    return Context(ledger, LocalHost(), "me")


def numbers(hv):
    return [event.seq for event in queries.events(hv.store, 0, 100)]


def test_events_from_before_a_time_are_deleted(hv):
    assert delete_old_events(hv, NOW + 6_000, MANY, dry_run=True) == 6
    assert numbers(hv) == [*range(1, 21)]
    assert delete_old_events(hv, NOW + 6_000, MANY) == 6
    assert delete_old_events(hv, NOW + 6_000, MANY) == 0
    assert numbers(hv) == [*range(7, 21)]


def test_the_oldest_are_deleted_if_there_are_too_many(hv):
    assert delete_old_events(hv, 0, 5, dry_run=True) == 15
    assert delete_old_events(hv, 0, 5) == 15
    assert numbers(hv) == [*range(16, 21)]


def test_the_end_of_the_log_is_kept_and_no_number_is_used_twice(hv):
    assert delete_old_events(hv, NOW * 2, 0) == 17
    assert numbers(hv) == [18, 19, 20]
    assert hv.store.write(delete_events, 99, 99) == 2
    hv.store.add([NewTask("next")], None, "me", NOW)
    assert numbers(hv) == [20, 21]


def test_tasks_stay_counted(hv, claim, settle):
    for _ in range(5):
        settle(claim(), "complete")
    running = claim()
    delete_old_events(hv, NOW * 2, 0)
    assert not hv.store.read(counts.corrections)
    settle(running, "complete")
    assert states(hv) == {"active": 14, "done": 6}
    assert not hv.store.read(counts.corrections)


def states(hv):
    stats = hv.store.read(queries.stats, None, NOW)
    return {state: count for state, count in stats.states.items() if count}


def test_readers_start_with_the_oldest_event_that_is_kept(hv, monkeypatch):
    delete_old_events(hv, 0, 5)
    monkeypatch.setattr("hypervisor.queue.queries.EVENT_PAGE", 2)
    shown, last = last_events(hv, 10)
    assert [event.seq for event in shown] == [*range(16, 21)] and last == 20
    assert queries.end_of_log(hv.store) == 20
    assert queries.number_before(hv.store, NOW + 17_500) == 18
    assert queries.number_before(hv.store, NOW + 2_500) == 0
    assert hv.store.read(queries.stats, None, NOW + 19_000).total == 20


def test_looking_back_through_a_long_deleted_log_reads_little(hv, monkeypatch):
    """The number of pages must not depend on what was deleted."""
    delete_old_events(hv, 0, 5)
    monkeypatch.setattr("hypervisor.queue.queries.EVENT_PAGE", 1)
    starts: list[int] = []

    def read(hv, since, limit):
        starts.append(since)
        return tuple(queries.events(hv.store, since, limit))

    monkeypatch.setattr("hypervisor.queue.queries.events", read)
    last_events(hv, 10)
    assert starts == [19, 18, 17, 16, 15]
