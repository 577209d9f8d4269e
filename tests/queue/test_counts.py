"""The kept numbers of tasks are right whatever happens, on both databases. The state machine checks
them after every step; here is what it does not do."""

from __future__ import annotations

import pytest

from hypervisor.batches.sql import removal
from hypervisor.queue.context import Context
from hypervisor.queue.counts import ENOUGH, PAUSE_MS, CountKeeper, batch_counts
from hypervisor.queue.doctor import check_store as doctor
from hypervisor.queue.queries import list_tasks
from hypervisor.queue.sql import counts, queries
from hypervisor.queue.task import Changes, NewTask
from hypervisor.resources.host import LocalHost
from hypervisor.store.schema import COLUMNS
from tests.support.given import NOW

ARCHIVE = "UPDATE batches SET archived_at = ? WHERE id = ?"
NAMES = ", ".join(name for name, _ in COLUMNS["events"])
COPY_CLAIMS = f"INSERT INTO events ({NAMES}) SELECT {NAMES} FROM events WHERE kind = 'claim'"


def states(ledger, batch=None):
    stats = ledger.read(queries.stats, batch, NOW)
    return {state: count for state, count in stats.states.items() if count}


def test_claims_and_results_are_counted_before_they_are_folded(ledger, claim, settle):
    ledger.add([NewTask(str(n)) for n in range(5)], None, "me", NOW)
    first, second = claim(), claim()
    settle(first, "complete")
    assert states(ledger) == {"active": 3, "in_progress": 1, "done": 1}
    ledger.write(counts.fold_all)
    assert states(ledger) == {"active": 3, "in_progress": 1, "done": 1}
    settle(second, "fail")
    assert states(ledger) == {"active": 3, "done": 1, "failed": 1}


def test_counts_follow_a_task_to_another_type(ledger, claim):
    ledger.add([NewTask("a", type="old"), NewTask("b", type="old")], None, "me", NOW)
    ledger.update(claim().task, Changes(type="new"), "me", NOW)
    ledger.write(counts.fold_all)
    assert ledger.read(queries.stats, None, NOW).types == {
        "old": {"active": 1},
        "new": {"in_progress": 1},
    }


def test_deleted_tasks_are_no_longer_counted(ledger, claim, settle):
    added = ledger.add([NewTask("a"), NewTask("b")], "gone", "me", NOW)
    ledger.add([NewTask("c")], "stays", "me", NOW)
    batch = ledger.batch("gone").id
    for token in [claim(), claim(), claim()]:
        settle(token, "complete")
    ledger.write(removal.begin, batch, "gone", "me", NOW)
    ledger.write(removal.delete_tasks, added.ids[:1])
    assert states(ledger, batch) == {"done": 1} and states(ledger) == {"done": 2}
    ledger.write(removal.delete_tasks, added.ids[1:])
    assert ledger.write(removal.finish, batch, {}, "me", NOW)
    assert states(ledger) == {"done": 1}
    assert ledger.read(counts.corrections) == []


def test_doctor_corrects_what_an_older_process_did_not_count(store, ledger):
    ledger.add([NewTask("a"), NewTask("b")], None, "me", NOW)
    store.run("DELETE FROM count_changes")
    hv = Context(ledger, LocalHost(), "me")
    assert states(ledger) == {}
    [check] = [check for check in doctor(hv) if check.name == "counts"]
    assert check.ok and "1 count" in check.found
    assert states(ledger) == {"active": 2}


def test_the_supervisor_folds_only_when_it_is_worth_a_write(ledger, claim, settle):
    hv = Context(ledger, LocalHost(), "me")
    keeper = CountKeeper(hv)
    ledger.add([NewTask(str(n)) for n in range(5)], None, "me", NOW)
    ledger.events(0, 1)  # numbers them on PostgreSQL
    keeper.tick(NOW)
    assert ledger.read(counts.counted) == 0
    ledger.add([NewTask(str(n)) for n in range(ENOUGH)], None, "me", NOW)
    ledger.events(0, 1)
    keeper.tick(NOW + PAUSE_MS - 1)
    assert ledger.read(counts.counted) == 0
    keeper.tick(NOW + PAUSE_MS)
    assert ledger.read(counts.counted) == ENOUGH + 5
    assert states(ledger) == {"active": ENOUGH + 5}


def test_many_batches_are_counted_at_once(ledger, claim):
    ledger.add([NewTask("a"), NewTask("b")], "one", "me", NOW)
    ledger.add([NewTask("c", inbox=True)], "two", "me", NOW)
    one, two = ledger.batch("one").id, ledger.batch("two").id
    claim()
    found = batch_counts(Context(ledger, LocalHost(), "me"), [one, two])
    assert found[one].states == {"active": 1, "in_progress": 1} and found[one].total == 2
    assert found[two].states == {"inbox": 1} and found[two].ended == 0


def test_the_pace_of_very_many_events_is_that_of_the_last_ones(ledger, claim, settle, monkeypatch):
    monkeypatch.setattr(queries, "PACE_EVENTS", 4)
    ledger.add([NewTask(str(n)) for n in range(3)], None, "me", NOW - 60_000)
    for token in [claim(at=NOW - 60_000) for _ in range(3)]:
        settle(token, "complete", at=NOW - 30_000)
    stats = ledger.read(queries.stats, None, NOW)
    assert stats.window_seconds == 60 and stats.completed_per_minute == 3


def test_a_list_of_tasks_in_a_state_that_none_has_reads_no_task(ledger, claim, settle, monkeypatch):
    ledger.add([NewTask("a"), NewTask("b")], "one", "me", NOW)
    hv = Context(ledger, LocalHost(), "me")
    with monkeypatch.context() as patch:
        patch.setattr(queries, "TASK", "not SQL")
        assert list_tasks(hv, ("review", "blocked")) == ()
        assert list_tasks(hv, ("done",), "one") == ()
    settle(claim(), "complete")
    assert [task.title for task in list_tasks(hv, ("done",), "one")] == ["a"]
    assert [task.title for task in list_tasks(hv, ("review", "done"))] == ["a"]


def test_an_event_is_read_once_for_all_looks_of_a_process(ledger, claim, settle, monkeypatch):
    ledger.add([NewTask(str(n)) for n in range(4)], "one", "me", NOW)
    moved, move = [], counts._move

    def note(total, rows):
        moved.append(rows)
        move(total, rows)

    monkeypatch.setattr(counts, "_move", note)
    ledger.write(counts.fold_all)
    moved.clear()
    settle(claim(), "complete")
    ledger.write(lambda session: session.number_events())
    assert states(ledger) == {"active": 3, "done": 1}
    assert sum(row[-1] for rows in moved for row in rows) == 2
    moved.clear()
    assert states(ledger) == {"active": 3, "done": 1}
    assert not any(moved), "nothing has happened since"
    claim()
    assert states(ledger) == {"active": 2, "in_progress": 1, "done": 1}
    assert sum(row[-1] for rows in moved for row in rows) == 1


def test_counts_are_right_after_others_folded_and_after_a_change_was_rolled_back(
    ledger, claim, settle
):
    ledger.add([NewTask(str(n)) for n in range(4)], "one", "me", NOW)
    settle(claim(), "complete")
    assert states(ledger) == {"active": 3, "done": 1}
    ledger.write(counts.fold_all)
    assert states(ledger) == {"active": 3, "done": 1}
    token = claim()
    assert states(ledger) == {"active": 2, "in_progress": 1, "done": 1}

    def look_and_fail(session):
        session.run(COPY_CLAIMS)
        session.number_events()
        counts.counts(session)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        ledger.write(look_and_fail)
    ledger.write(lambda session: session.number_events())
    settle(token, "release")
    token = claim()
    assert states(ledger) == {"active": 2, "in_progress": 1, "done": 1}
    settle(token, "fail")
    assert states(ledger) == {"active": 2, "done": 1, "failed": 1}


def test_what_events_moved_in_an_archived_batch_is_not_counted_with_all(ledger, claim, settle):
    ledger.add([NewTask("a")], "one", "me", NOW)
    ledger.add([NewTask("b")], "two", "me", NOW)
    settle(claim(), "complete")
    settle(claim(), "complete")
    assert states(ledger) == {"done": 2}
    batch = ledger.batch("one").id
    ledger.write(lambda session: session.run(ARCHIVE, (NOW, batch)))
    assert states(ledger) == {"done": 1} and states(ledger, batch) == {"done": 1}
