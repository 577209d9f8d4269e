"""Approved actions: state and evidence change together, and a task is never created twice."""

from __future__ import annotations

import pytest

from hypervisor.batches.plans.action import APPLIED, APPLYING, FAILED, PLANNED, UNDONE
from hypervisor.core.errors import NotFound, WrongState
from hypervisor.queue.task import NewTask
from tests.support.given import NOW

BATCH = "tidy"
LOOK = NewTask("look", key="the key", data={"plan": "?"})


@pytest.fixture
def tasks(ledger, add):
    return add("one", "two", batch=BATCH)


@pytest.fixture
def batch(ledger, tasks):
    return ledger.batch(BATCH).id


@pytest.fixture
def approve(ledger, tasks, batch):
    def approver(*kinds, at=NOW):
        new = [(tasks[n % 2], kind, {"n": n}) for n, kind in enumerate(kinds)]
        return ledger.approve_actions(batch, new, f"approved {len(new)}", "ann", at)

    return approver


def texts(ledger, batch):
    return [each.text for each in ledger.receipts_of_chain(batch)]


def look(batch):
    return LOOK._replace(data={"plan": batch})


def test_an_approval_is_one_receipt_and_numbers_continue(ledger, batch, tasks, approve):
    first = approve("move", "edit")
    second = approve("delete", at=NOW + 1)
    assert [a.number for a in first + second] == [1, 2, 3]
    assert ledger.actions(batch) == first + second
    assert {a.state for a in first} == {PLANNED}
    assert texts(ledger, batch) == ["approved 2", "approved 1"]
    assert ledger.receipts_of_chain(batch)[0].task == ""
    kinds = [event.kind for event in ledger.events(0, 100)]
    assert kinds.count("plan") == 2
    assert ledger.check_receipts(batch)[0].problem is None


def test_a_state_changes_with_its_receipt_and_its_data(ledger, batch, tasks, approve):
    (action,) = approve("move")
    begun = ledger.move_action(action._replace(data={"more": 1}), APPLYING, None, "", "bob", NOW)
    assert texts(ledger, batch) == ["approved 1"], "nothing to show yet"
    done = ledger.move_action(begun, APPLIED, None, "moved it", "bob", NOW + 5)
    assert ledger.actions(batch) == [done]
    assert (done.state, done.data, done.at) == (APPLIED, {"more": 1}, NOW + 5)
    last = ledger.receipts_of_chain(batch)[-1]
    said = f"moved it, proposed by {tasks[0]}"
    assert (last.task, last.actor, last.text) == ("", "bob", said)
    assert ledger.receipts_of_task(tasks[0]) == [], "its file would have to show them"
    events = [event.data for event in ledger.events(0, 100) if event.kind == "action"]
    assert [event["now"] for event in events] == [APPLYING, APPLIED]


def test_an_old_picture_of_an_action_changes_nothing(ledger, batch, approve):
    (action,) = approve("move")
    ledger.move_action(action, FAILED, "gone", "not moved", "bob", NOW)
    before = texts(ledger, batch)
    with pytest.raises(WrongState, match="action 1 is failed, not planned"):
        ledger.move_action(action, APPLYING, None, "twice", "bob", NOW)
    with pytest.raises(WrongState):
        ledger.apply_task(action, LOOK, "twice", "bob", NOW)
    with pytest.raises(NotFound):
        ledger.move_action(action._replace(number=9), APPLYING, None, "", "bob", NOW)
    assert texts(ledger, batch) == before
    assert ledger.resolve(action.task) == action.task, "the store goes on"


def test_a_task_is_added_with_the_state_that_says_so(ledger, batch, approve):
    (action,) = approve("task")
    done = ledger.apply_task(action, look(batch), "made", "bob", NOW)
    assert (done.state, done.data["is_ours"]) == (APPLIED, True)
    made = ledger.task(done.data["made"])
    assert (made.title, made.state, made.batch) == ("look", "active", "")
    assert texts(ledger, batch)[-1] == f"made: {made.id}, proposed by {action.task}"


def test_someone_elses_task_of_that_key_is_left_alone(ledger, batch, approve):
    (theirs,) = ledger.add([NewTask("theirs", key="the key")], None, "eve", NOW).ids
    (action,) = approve("task")
    done = ledger.apply_task(action, look(batch), "made", "bob", NOW)
    assert (done.data["made"], done.data["is_ours"]) == (theirs, False)
    said = f"made, which already existed: {theirs}, proposed by {action.task}"
    assert texts(ledger, batch)[-1] == said
    assert ledger.undo_task(done, "undone", "bob", NOW).state == UNDONE
    assert ledger.task(theirs).state == "active"


def test_a_task_is_cancelled_and_taken_up_again(ledger, batch, approve):
    first, second = approve("task", "task")
    done = ledger.apply_task(first, look(batch), "made", "bob", NOW)
    task = done.data["made"]
    assert ledger.undo_task(done, "undone", "bob", NOW).state == UNDONE
    assert ledger.task(task).state == "cancelled"
    again = ledger.apply_task(second, look(batch), "made", "bob", NOW)
    assert (again.data["made"], again.data["is_ours"]) == (task, True)
    assert ledger.task(task).state == "active"


def test_a_task_that_was_started_is_not_cancelled(ledger, batch, approve, claim, settle):
    (action,) = approve("task")
    done = ledger.apply_task(action, look(batch)._replace(type="fresh"), "made", "bob", NOW)
    token = claim(types=("fresh",))
    assert token.task == done.data["made"]
    with pytest.raises(WrongState, match="was started and is running"):
        ledger.undo_task(done, "undone", "bob", NOW)
    settle(token, "release")
    with pytest.raises(WrongState, match="was started and is ready"):
        ledger.undo_task(done, "undone", "bob", NOW)
    assert ledger.actions(batch)[0].state == APPLIED


@pytest.fixture
def chunked(ledger, claim, settle):
    """A batch of four chunks, one task each; the first two are decided, one of the others ran."""
    batch = ledger.declare("chunked", {"cwd": "/"}, "me", NOW)
    ledger.declare_chunks(batch.id, ["a", "b", "c", "d"], "each")
    new = [NewTask(name, chunk=n) for n, name in enumerate("abcd", 1)]
    ledger.add([*new, NewTask("e")], "chunked", "me", NOW)
    found = {}
    while token := claim(batch=batch.id):
        task = ledger.task(token.task)
        found[task.title] = task.id
        settle(token, "complete", result={"actions": [task.title]})
        if task.title in "ab":
            number = "ab".index(task.title) + 1
            state = "approved" if number == 1 else "rejected"
            ledger.decide_chunk(batch.id, number, state, "", "me", NOW)
    return batch.id, found


def test_only_chunks_that_may_have_a_say_are_asked(ledger, chunked):
    batch, found = chunked
    assert set(found) == {"a", "b", "c", "e"}, "d is held"
    asked = ledger.proposing(batch, "", 10)
    assert [each.title for each in asked] == ["a", "e"]
    assert ledger.held_back(batch) == {"open": 1, "rejected": 1}
    with_open = ledger.proposing(batch, "", 10, chunk=3)
    assert [(each.title, each.chunk) for each in with_open] == [("a", 1), ("c", 3), ("e", 0)]
    assert ledger.held_back(batch, chunk=3) == {"rejected": 1}
    # Running it again without its gate decides nothing; approving the rest does.
    ledger.declare("chunked", {"cwd": "/", "gate": "none"}, "me", NOW)
    assert [each.title for each in ledger.proposing(batch, "", 10)] == ["a", "e"]
    ledger.decide_chunk(batch, 3, "approved", "", "me", NOW, in_advance=True)
    assert [chunk.state for chunk in ledger.chunks(batch)][2:] == ["approved", "free"]
    assert [each.title for each in ledger.proposing(batch, "", 10)] == ["a", "c", "e"]


def test_chunks_without_a_checkpoint_have_a_say(ledger, claim, settle):
    batch = ledger.declare("free", {"cwd": "/"}, "me", NOW).id
    ledger.declare_chunks(batch, ["a"], "none")
    ledger.add([NewTask("a", chunk=1)], "free", "me", NOW)
    settle(claim(batch=batch), "complete", result={"actions": ["x"]})
    assert [each.title for each in ledger.proposing(batch, "", 10)] == ["a"]
    assert ledger.held_back(batch) == {}


def test_proposals_come_page_by_page(ledger, chunked):
    batch, found = chunked
    (first,) = ledger.proposing(batch, "", 1)
    assert first.result == {"actions": ["a"]}
    (second,) = ledger.proposing(batch, first.task, 1)
    assert second.task == found["e"]
