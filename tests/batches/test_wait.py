"""Cursors on both databases: the position of a reader is kept, and events arrive in order."""

from __future__ import annotations

import threading

import pytest

from hypervisor.batches.wait import acknowledge, start_cursor, wait_for_events
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.add import add
from hypervisor.queue.claim import claim, complete, fail
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import NewTask
from hypervisor.resources.host import LocalHost
from tests.support.intercept import intercept


@pytest.fixture
def hv(ledger):
    return Context(ledger, LocalHost(), "me")


def finish(hv, number):
    add(hv, [NewTask(f"t{n}") for n in range(number)], "b")
    for lease in claim(hv, "w", number, pid=0):
        complete(hv, lease.token)


def test_the_end_of_the_log_is_found_by_halving(hv):
    assert queries.end_of_log(hv.store) == 0
    for number in (1, 2, 6):
        add(hv, [NewTask("x") for _ in range(number)])
        assert queries.end_of_log(hv.store) == hv.store.events(0, 1_000)[-1].seq


def test_pages_follow_each_other_without_gap_or_repeat(hv):
    finish(hv, 25)
    seen, last = [], None
    while (news := wait_for_events(hv, "c", timeout=0, ack=last, limit=4)).events:
        seen += [event.seq for event in news.events]
        last = news.last
    assert seen == [e.seq for e in hv.store.events(0, 1_000) if e.kind == "complete"]
    assert hv.store.cursor("c") == last


def test_old_names_of_events_can_be_waited_for(hv):
    hv.store.note("cooldown", {"message": "slow down"}, "w")
    news = wait_for_events(hv, "c", timeout=0, kinds=["brake"])
    assert [event.kind for event in news.events] == ["cooldown"]


def test_a_cursor_moves_on_and_never_back(hv):
    finish(hv, 3)
    assert acknowledge(hv, "c", 2) == 2
    assert acknowledge(hv, "c", 1) == 2
    with pytest.raises(InvalidInput, match="The cursor is still at 2"):
        acknowledge(hv, "c", 1_000)
    assert hv.store.cursor("c") == 2


def test_a_late_acknowledgement_moves_no_cursor_back(hv):
    finish(hv, 3)
    acknowledge(hv, "c", 4)
    hv.store.move_cursor("c", 2)
    assert hv.store.cursor("c") == 4


def test_what_ends_while_we_look_is_reported_with_the_end(hv, monkeypatch):
    add(hv, [NewTask("x")], "b")
    token = claim(hv, "w", pid=0)[0].token

    def meanwhile(count, *args):
        complete(hv, token)
        return count(*args)

    intercept(monkeypatch, hv.store, queries.stats, meanwhile)
    news = wait_for_events(hv, "c", "finished", timeout=0, batch="b")
    assert news.finished and [event.kind for event in news.events] == ["complete"]


def test_a_wait_that_can_never_end_is_reported(hv):
    ids = add(hv, [NewTask("a", key="a"), NewTask("b", key="b", after=("a",))], "b").ids
    add(hv, [NewTask("c", after=(ids[1],))], "c")
    assert not wait_for_events(hv, "c", "finished", timeout=0, batch="c").stuck
    fail(hv, claim(hv, "w", pid=0)[0].token, "no", final=True)
    assert wait_for_events(hv, "c", "finished", timeout=9, batch="b").stuck == ids[0]
    assert wait_for_events(hv, "c", "finished", timeout=9, batch="c").stuck == ids[0]


def test_a_cursor_may_start_at_the_end(hv):
    finish(hv, 2)
    start_cursor(hv, "c")
    assert wait_for_events(hv, "c", timeout=0).events == ()
    finish(hv, 1)
    assert start_cursor(hv, "c") == hv.store.cursor("c")  # it is there: nothing changes
    assert len(wait_for_events(hv, "c", timeout=0).events) == 1


def test_who_waits_hears_it_when_it_happens(hv, open_ledger):
    other = Context(open_ledger(), LocalHost(), "other")
    add(other, [NewTask("x")], "b")
    token = claim(other, "w", pid=0)[0].token
    later = threading.Timer(0.2, complete, (other, token))
    later.start()
    news = wait_for_events(hv, "c", "finished", timeout=30, batch="b")
    later.join()
    assert news.finished and [event.kind for event in news.events] == ["complete"]
