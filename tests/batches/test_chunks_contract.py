"""Chunks: a held chunk cannot be claimed, a decision releases the next one; on both databases."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import NotFound, WrongState
from hypervisor.queue.lease import AttemptResult, ClaimRequest, parse_token
from hypervisor.queue.task import Changes, NewTask
from tests.support.given import ANN, LEASE, NOW, claimable

SPEC = {"cwd": "/", "command": ["true"]}


@pytest.fixture
def batch(ledger, add):
    """A batch of three chunks with two tasks each, gated after each."""
    found = ledger.declare("b", SPEC, "me", NOW).id
    ledger.declare_chunks(found, ["jan", "feb", "mar"], "each")
    for number, name in ((1, "jan"), (2, "feb"), (3, "mar")):
        add(*(NewTask(f"{name} {i}", chunk=number) for i in (1, 2)), batch="b")
    return found


def work(ledger, event="complete", **more):
    """Complete everything that can be claimed."""
    leases = ledger.claim(ClaimRequest(ANN, 100, LEASE), NOW)
    ledger.settle([AttemptResult(parse_token(each.token), event, **more) for each in leases], NOW)
    return [each.task.title for each in leases]


def states(ledger, batch):
    return [(chunk.name, chunk.state, chunk.tasks) for chunk in ledger.chunks(batch)]


def test_only_the_first_chunk_of_a_gated_batch_may_run(ledger, batch):
    assert states(ledger, batch) == [
        ("jan", "open", {"active": 2}),
        ("feb", "held", {"waiting": 2}),
        ("mar", "held", {"waiting": 2}),
    ]
    assert claimable(ledger) == ["jan 1", "jan 2"]


def test_without_a_gate_or_after_the_first_everything_runs(ledger):
    free = ledger.declare("free", SPEC, "me", NOW).id
    assert [c.state for c in ledger.declare_chunks(free, ["a", "b"], "none")] == ["free", "free"]
    first = ledger.declare("first", SPEC, "me", NOW).id
    ledger.declare_chunks(first, ["a", "b", "c"], "first")
    ledger.add([NewTask(n, chunk=i) for i, n in enumerate("abc", 1)], "first", "me", NOW)
    work(ledger)
    assert ledger.decide_chunk(first, 1, "approved", "", "ann", NOW, True) == [2, 3]
    assert work(ledger) == ["b", "c"]
    later = ledger.declare_chunks(first, ["d"], "first")[-1]
    assert (later.number, later.state) == (4, "free")


def test_the_gate_after_the_first_does_not_ask_where_nothing_follows(ledger):
    batch = ledger.declare("b", SPEC, "me", NOW).id
    assert [c.state for c in ledger.declare_chunks(batch, ["a"], "first")] == ["free"]
    later = ledger.declare_chunks(batch, ["a", "b", "c"], "first")
    assert [c.state for c in later] == ["free", "open", "held"]


def test_the_gate_after_the_first_asks_of_the_second_where_they_come_one_by_one(ledger):
    batch = ledger.declare("b", SPEC, "me", NOW).id
    found = [ledger.declare_chunks(batch, [name], "first")[-1].state for name in "abc"]
    assert found == ["free", "open", "held"]
    ledger.add([NewTask(n, chunk=i) for i, n in enumerate("abc", 1)], "b", "me", NOW)
    assert work(ledger) == ["a", "b"]
    assert ledger.decide_chunk(batch, 2, "approved", "", "ann", NOW) == [3]
    assert ledger.declare_chunks(batch, ["d"], "first")[-1].state == "free"


def test_a_gate_behind_chunks_that_had_none_holds_and_lets_go(ledger):
    """A decision must be requested, or the held chunk would wait forever."""
    batch = ledger.declare("b", SPEC, "me", NOW).id
    ledger.declare_chunks(batch, ["a"], "none")
    later = ledger.declare_chunks(batch, ["a", "b", "c"], "each")
    assert [c.state for c in later] == ["free", "open", "held"]


@pytest.mark.parametrize("decision", ["approved", "rejected"])
def test_a_decision_lets_the_next_chunk_go(ledger, batch, decision):
    assert work(ledger) == ["jan 1", "jan 2"]
    assert work(ledger) == []
    assert ledger.decide_chunk(batch, 1, decision, "fine", "ann", NOW + 5) == [2]
    first = ledger.chunks(batch)[0]
    assert (first.state, first.note, first.actor, first.decided_at) == (
        decision,
        "fine",
        "ann",
        NOW + 5,
    )
    assert claimable(ledger) == ["feb 1", "feb 2"]
    [line] = ledger.receipts_of_chain(batch)
    assert (line.text, line.actor) == (f"chunk 1 (jan) {decision}: fine", "ann")
    assert ledger.check_receipts(None)[0].problem is None
    assert [e.kind for e in ledger.events(0, 999)].count("checkpoint") == 1


def test_what_has_not_ended_cannot_be_decided(ledger, batch):
    with pytest.raises(WrongState, match="2 of its 2 tasks are not finished"):
        ledger.decide_chunk(batch, 1, "approved", "", "ann", NOW)
    with pytest.raises(WrongState):
        ledger.decide_chunk(batch, 2, "approved", "", "ann", NOW)
    [lease] = ledger.claim(ClaimRequest(ANN, 1, LEASE), NOW)
    ledger.settle([AttemptResult(parse_token(lease.token), "complete")], NOW)
    with pytest.raises(WrongState, match="1 of its 2 tasks is not finished"):
        ledger.decide_chunk(batch, 1, "approved", "", "ann", NOW)
    with pytest.raises(NotFound, match="no chunk 9"):
        ledger.decide_chunk(batch, 9, "approved", "", "ann", NOW)
    assert claimable(ledger) == ["jan 2"]


def test_failures_end_a_chunk_as_well(ledger, batch):
    work(ledger, "fail", reason="no")
    assert ledger.chunks(batch)[0].awaits_decision
    assert ledger.decide_chunk(batch, 1, "approved", "", "ann", NOW) == [2]


def test_tasks_are_tried_again_with_a_note(ledger, batch):
    work(ledger)
    ledger.decide_chunk(batch, 1, "approved", "", "ann", NOW)
    tasks = [task.id for task in ledger.chunk_tasks(batch, 1)]
    ledger.update(tasks[0], Changes(data={"item": "x"}), "me", NOW)
    other = ledger.chunk_tasks(batch, 2)[0].id
    assert ledger.retry_chunk(batch, 1, [*tasks, other], "be kinder", "ann", NOW) == 2
    again = ledger.chunk_tasks(batch, 1)
    assert [task.state for task in again] == ["active", "active"]
    assert again[0].data == {"item": "x", "note": "be kinder"}
    assert ledger.chunks(batch)[0].state == "open"
    assert "be kinder" in ledger.receipts_of_chain(batch)[-1].text
    with pytest.raises(WrongState, match="has not run yet"):
        ledger.retry_chunk(batch, 3, [], "", "ann", NOW)


def test_nothing_but_a_decision_frees_a_held_task(ledger, batch):
    held = ledger.chunk_tasks(batch, 2)[0].id
    ledger.update(held, Changes(priority="critical"), "me", NOW)
    assert ledger.task(held).state == "waiting"
    ledger.cancel(held, "", "me", NOW)
    ledger.reopen(held, "", "me", NOW)
    assert ledger.task(held).state == "waiting"
    other = ledger.add([NewTask("late", chunk=2, start_at=NOW + 5)], "b", "me", NOW).ids[0]
    ledger.promote_due(NOW + 10)
    needs = ledger.add([NewTask("after", chunk=3, after=(other,))], "b", "me", NOW).ids[0]
    keyed = ledger.add([NewTask("keyed", chunk=2, exclusive=("k",))], "b", "me", NOW).ids[0]
    assert {ledger.task(each).state for each in (other, needs, keyed)} == {"waiting"}
    work(ledger)
    ledger.decide_chunk(batch, 1, "approved", "", "ann", NOW)
    assert sorted(claimable(ledger)) == ["feb 1", "feb 2", "keyed", "late"]
    assert ledger.task(needs).state == "waiting"


def test_chunks_keep_their_numbers_when_declared_again(ledger, batch):
    again = ledger.declare_chunks(batch, ["apr", "feb", "jan"], "each")
    assert [(c.number, c.name) for c in again] == [
        (1, "jan"),
        (2, "feb"),
        (3, "mar"),
        (4, "apr"),
    ]


def test_evidence_is_written_down_with_the_end(ledger, batch):
    leases = ledger.claim(ClaimRequest(ANN, 2, LEASE), NOW)
    verdicts = [
        AttemptResult(
            parse_token(lease.token), "complete", receipts=("one", f"two {lease.task.title}")
        )
        for lease in leases
    ]
    ledger.settle(verdicts, NOW)
    ledger.settle(verdicts, NOW)  # repeating a result returns the same answer and writes nothing
    found = ledger.receipts_of_chain(batch)
    assert [(r.number, r.text) for r in found] == [
        (1, "one"),
        (2, "two jan 1"),
        (3, "one"),
        (4, "two jan 2"),
    ]
    assert {r.attempt for r in found} == {1}
    assert ledger.check_receipts(batch)[0].problem is None
    lines = [e.data["lines"] for e in ledger.events(0, 999) if e.kind == "receipt"]
    assert lines == [[1, 2], [3, 4]]
