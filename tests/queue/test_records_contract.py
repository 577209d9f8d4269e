"""What is written down, on both databases: duplicates, updates, events, receipts."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import NotFound, WrongState
from hypervisor.queue.lease import AttemptResult, ClaimRequest, parse_token
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Changes, NewTask
from tests.support.databases import dump
from tests.support.given import ANN, BOB, LEASE, NOW, claim_all, titles

# Duplicates


def test_duplicates_by_key_are_reported_not_doubled(ledger):
    batch = "b"
    new = [NewTask("a", key="x"), NewTask("b", key="x"), NewTask("c")]
    added = ledger.add(new, batch, "me", NOW)
    assert len(added.ids) == 2
    assert [(d.key, d.task) for d in added.duplicates] == [("x", added.ids[0])]
    again = ledger.add(new, batch, "me", NOW + 1)
    assert len(again.ids) == 1
    assert [(d.task, d.state) for d in again.duplicates] == [(added.ids[0], "active")] * 2
    assert len(ledger.add(new[:1], None, "me", NOW).ids) == 1, "another batch has keys of its own"


def test_a_refused_call_adds_nothing(store, ledger, add):
    add("a")
    before = dump(store)
    with pytest.raises(NotFound):
        add("fine", NewTask("not", after=("no such key!",)))
    assert dump(store) == before


def test_a_task_is_found_by_a_unique_part_of_its_id(ledger, add):
    task = add("a")
    for part in (task[:4], task[1:6], task[-5:], task[-11:], task):
        assert ledger.resolve(part) == task
    with pytest.raises(NotFound, match="at least 5 characters"):
        ledger.resolve(task[-4:])
    with pytest.raises(NotFound, match="no task has the id"):
        ledger.resolve("zzzzz")


# Updating


def test_an_update_moves_a_task_to_where_it_belongs(ledger, add):
    one, two = add("one", "two")
    ledger.update(two, Changes(priority="high", title="new"), "me", NOW)
    ledger.update(one, Changes(assignee="bob", requires=("gpu",)), "me", NOW)
    assert claim_all(ledger) == ["new"]
    assert claim_all(ledger, BOB, capabilities=("gpu",)) == ["one"]


# Events


def test_the_last_event_before_a_time(ledger, add):
    add("a", "b", "c")
    add("later", at=NOW + 1_000)
    times = (0, NOW, NOW + 1, NOW + 1_000, NOW + 1_001)
    assert [queries.number_before(ledger, at) for at in times] == [0, 0, 3, 3, 4]


def test_events_are_numbered_without_gaps_and_read_on_from_anywhere(ledger, add, claim, settle):
    task = add("a")
    settle(claim(), "complete")
    with pytest.raises(WrongState):
        ledger.cancel(task, "", "me", NOW)
    add("b")
    events = ledger.events(0, 99)
    assert [event.seq for event in events] == [1, 2, 3, 4]
    assert [event.kind for event in events] == ["add", "claim", "complete", "add"]
    assert [event.state for event in events] == ["active", "in_progress", "done", "active"]
    assert [event.actor for event in events] == ["me", "w-ann", "w-ann", "me"]
    assert ledger.events(2, 1) == events[2:3] and ledger.events(4, 99) == []


def test_events_of_older_versions_are_read_under_their_current_names(ledger):
    for kind in ("brake", "rest", "lift_brake"):
        ledger.note(kind, {"account": "a", "said": "slow down"}, "w", now=NOW)
    ledger.note("trouble", {"said": "old", "message": "new"}, "w", now=NOW)
    events = ledger.events(0, 9)
    assert [each.kind for each in events[:3]] == ["cooldown", "cooldown_wait", "cooldown_end"]
    assert events[0].data == {"account": "a", "message": "slow down"}
    assert events[3].data == {"said": "old", "message": "new"}


# Receipts


@pytest.fixture
def chain(ledger, add):
    """A chain of five receipts in a batch."""
    task = add("a", batch="b")
    batch = ledger.batch("b").id
    ledger.append(task, "me", [f"line {n}" for n in range(1, 6)], NOW)
    return batch


def test_receipts_form_one_chain_per_batch(ledger, chain, add, claim):
    token = claim()
    ledger.append_under_claim(token, ["under the claim"], NOW)
    alone = add("alone")
    ledger.append(alone, "me", ["mine"], NOW)
    assert [r.number for r in ledger.receipts_of_chain(chain)] == [1, 2, 3, 4, 5, 6]
    assert ledger.receipts_of_chain(chain)[-1][3:6] == (1, NOW, "w-ann")
    reports = {r.chain: (r.receipts, r.problem) for r in ledger.check_receipts(None)}
    assert reports == {chain: (6, None), alone: (1, None)}


TAMPERING = {
    "changed": "UPDATE receipts SET text = 'other' WHERE number = 3",
    "changed actor": "UPDATE receipts SET actor = 'other' WHERE number = 5",
    "removed": "DELETE FROM receipts WHERE number = 3",
    "removed first": "DELETE FROM receipts WHERE number = 1",
    "truncated": "DELETE FROM receipts WHERE number > 3",
    "all removed": "DELETE FROM receipts",
    "inserted": "INSERT INTO receipts SELECT chain, 6, task, attempt, at, actor, text, hash"
    " FROM receipts WHERE number = 5",
    "smuggled in front": "INSERT INTO receipts SELECT chain, -1, task, attempt, at, actor, text,"
    " hash FROM receipts WHERE number = 5",
    "head removed": "DELETE FROM receipt_chains",
    "head set back": "UPDATE receipt_chains SET number = 4,"
    " hash = (SELECT hash FROM receipts WHERE number = 4)",
    "reordered": "UPDATE receipts SET number = -number WHERE number IN (2, 3);"
    "UPDATE receipts SET number = 5 + number WHERE number < 0",
}


@pytest.mark.parametrize("how", TAMPERING)
def test_verify_finds_what_was_done_to_receipts(store, ledger, chain, how):
    assert [report.problem for report in ledger.check_receipts(chain)] == [None]
    for statement in TAMPERING[how].split(";"):
        store.run(statement)
    assert [report.problem is None for report in ledger.check_receipts(chain)] == [False]
    assert [report.problem is None for report in ledger.check_receipts(None)] == [False]


# Several processes


def test_two_ledgers_on_one_store_see_the_same(store, open_ledger):
    one, other = open_ledger(), open_ledger()
    need = one.add([NewTask("a", type="new lane")], None, "me", NOW).ids[0]
    [lease] = other.claim(ClaimRequest(BOB, 5, LEASE), NOW)
    assert lease.task.type == "new lane"
    task = other.add([NewTask("b", after=(need,), type="later lane")], None, "me", NOW).ids[0]
    assert one.settle([AttemptResult(parse_token(lease.token), "complete")], NOW)[0].state == "done"
    assert other.task(task).state == "active"
    assert titles(one.claim(ClaimRequest(ANN, 5, LEASE), NOW)) == ["b"]
    assert other.claim(ClaimRequest(BOB, 5, LEASE), NOW) == []
    assert one.events(0, 99) == other.events(0, 99)
