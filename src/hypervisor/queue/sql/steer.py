"""What a person does to a task from outside a claim: accept, cancel, reopen, update."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hypervisor.core.errors import WrongState
from hypervisor.core.ids import decode
from hypervisor.queue import lifecycle
from hypervisor.queue.lane import rank
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.sql import archive, counts, event_log, exclusive_keys, readiness, settlement
from hypervisor.queue.sql.lanes import get_lane, lane_book
from hypervisor.queue.task import Changes
from hypervisor.store.database import Row, Session

FIND = """
SELECT state, lane, batch, attempt, open_deps, start_at, held, chunk FROM tasks WHERE id = ?
"""
CANCEL = """
UPDATE tasks SET state = 'cancelled', reason = ?, unblock = NULL, updated_at = ? WHERE id = ?
"""
ENQUEUE = """
UPDATE tasks SET state = ?, reason = NULL, unblock = NULL, failures = 0, crashes = 0, start_at = ?,
    updated_at = ? WHERE id = ?
"""
RELOCATE = "UPDATE tasks SET lane = ?, rank = ?, updated_at = ? WHERE id = ?"
RELOCATE_KEYS = "UPDATE task_keys SET lane = ?, rank = ? WHERE task = ?"
SET_START = "UPDATE tasks SET start_at = ? WHERE id = ?"
FORGET_SUBMISSION = "DELETE FROM submissions WHERE task = ?"
IS_LANDING = "SELECT 1 FROM submissions WHERE task = ? AND landing = 1"

# Fields that decide whether and when a task can be claimed.
MOVING = ("type", "priority", "branch", "assignee", "requires", "after", "start_at")


def cancel(session: Session, task: str, reason: str, actor: str, now: int) -> str:
    session.lock("keys")  # before any row is locked, as in a claim
    row = _find(session, task)
    before = row[0]
    lifecycle.next_state(before, "cancel", task)
    if before == lifecycle.MERGING and session.rows(IS_LANDING, (task,)):
        raise WrongState(
            f"{task} is landing at this moment and can no longer be cancelled. Nothing was "
            f"changed; `hv show {task}` says where it has landed."
        )
    if before == lifecycle.IN_PROGRESS:
        settlement.end_without_token(session, task, row[3], "cancel", reason, now=now, actor=actor)
    else:
        freed = _leave_queue(session, task, row)
        session.run(CANCEL, (reason, now, task))
        _count(session, row, lifecycle.CANCELLED)
        if before == lifecycle.MERGING:
            session.run(FORGET_SUBMISSION, (task,))
        data = {"reason": reason} if reason else None
        state = lifecycle.CANCELLED
        event_log.note(session, "cancel", data, actor, now, task=task, batch=row[2], state=state)
        exclusive_keys.offer(session, freed, now)
    return lifecycle.CANCELLED


def requeue(
    session: Session,
    task: str,
    event: str,
    reason: str,
    actor: str,
    *,
    now: int,
    attempts: int | None = None,
) -> str:
    """Put a task into the queue by `reopen` or `accept` and reset its counters; with `attempts`,
    only if it has had exactly that many."""
    session.lock("keys")
    row = _find(session, task)
    before = row[0]
    if attempts is not None and row[3] != attempts:
        raise WrongState(
            f"{task} has had {row[3]} attempts, not {attempts}. Nothing was changed; check "
            f"whether it still needs a retry."
        )
    lifecycle.next_state(before, event, task)
    archive.show(session, row[2], actor, now)
    start_at = None if event == "reopen" else readiness.future_start(row[5], now)
    keyed = get_lane(session, row[1]).keyed
    after = lifecycle.queue_state(row[4], start_at, keyed, bool(row[6]))
    session.run(ENQUEUE, (after, start_at, now, task))
    if event == "reopen":
        _count(session, row, after)
        readiness.reopen_chunks(session, row[2], [row[7]])
    data = {"reason": reason} if reason else None
    event_log.note(session, event, data, actor, now, task=task, batch=row[2], state=after)
    if before == lifecycle.DONE:
        readiness.dependency_reopened(session, task, now)
    readiness.promote(session, [task], now)
    return str(_find(session, task)[0])


def reopen_all(
    session: Session, tasks: Sequence[str], reason: str, actor: str, now: int
) -> list[str]:
    """Reopen tasks. Returns their ids, without those that another process has just reopened."""
    reopened = []
    for task in tasks:
        with suppress(WrongState):
            requeue(session, task, "reopen", reason, actor, now=now)
            reopened.append(task)
    return reopened


def revoke_claim(session: Session, task: str, reason: str, actor: str, now: int) -> str:
    """End a claim at a person's request: the task goes back into the queue unchanged."""
    session.lock("keys")
    row = _find(session, task)
    lifecycle.next_state(row[0], "release", task)
    settlement.end_without_token(session, task, row[3], "release", reason, now=now, actor=actor)
    return str(_find(session, task)[0])


def update(session: Session, task: str, changes: Changes, actor: str, now: int) -> str:
    session.lock("keys")
    row = _find(session, task)
    moves = any(getattr(changes, name) is not None for name in MOVING)
    requeue = moves and row[0] in (lifecycle.WAITING, lifecycle.ACTIVE)
    _count_type(session, row, changes)
    if requeue:
        readiness.hold(session, [task], now)
    _change_details(session, task, changes)
    _change_lane(session, task, row[1], changes, now)
    if changes.after is not None:
        _refuse_if_started(task, row[0])
        readiness.replace_dependencies(session, task, changes.after)
    if changes.start_at is not None:
        start_at = readiness.future_start(changes.start_at, now)
        if start_at is not None:
            _refuse_if_started(task, row[0])
        session.run(SET_START, (start_at, task))
    fields = sorted(name for name, value in changes._asdict().items() if value is not None)
    event_log.note(session, "update", {"fields": fields}, actor, now, task=task, batch=row[2])
    if requeue and get_lane(session, row[1]).keyed:
        freed = exclusive_keys.drop(session, task)
        exclusive_keys.enqueue(session, task)
        exclusive_keys.offer(session, freed, now)
    elif requeue:
        readiness.promote(session, [task], now)
    return str(_find(session, task)[0])


def _find(session: Session, task: str) -> Row:
    return session.rows(FIND + session.for_update, (task,))[0]


def _count(session: Session, row: Row, after: str) -> None:
    before, batch, kind = row[0], row[2], get_lane(session, row[1]).type
    counts.change(session, [(batch, kind, before, -1), (batch, kind, after, 1)])


def _count_type(session: Session, row: Row, changes: Changes) -> None:
    state, batch, kind = row[0], row[2], get_lane(session, row[1]).type
    if changes.type not in (None, kind):
        counts.fold_all(session)
        counts.change(session, [(batch, kind, state, -1), (batch, changes.type or "", state, 1)])


def _leave_queue(session: Session, task: str, row: Row) -> Sequence[str]:
    return exclusive_keys.drop(session, task) if get_lane(session, row[1]).keyed else ()


def _refuse_if_started(task: str, state: str) -> None:
    if state not in (lifecycle.INBOX, lifecycle.WAITING, lifecycle.ACTIVE):
        raise WrongState(
            f"{task} is {state_name(state)}, so its dependencies cannot change. Nothing was "
            f"changed; retry the task first."
        )


def _change_details(session: Session, task: str, changes: Changes) -> None:
    values: dict[str, Any] = {
        "title": changes.title,
        "body": changes.body,
        "data": event_log.dump(changes.data),
    }
    for column, value in values.items():
        if value is not None:
            session.run(f"UPDATE details SET {column} = ? WHERE task = ?", (value, task))
    if changes.retries is not None:
        session.run("UPDATE tasks SET retries = ? WHERE id = ?", (changes.retries, task))


def _change_lane(session: Session, task: str, lane_id: int, changes: Changes, now: int) -> None:
    lane = get_lane(session, lane_id)
    wanted = {
        name: value
        for name in ("type", "priority", "branch", "assignee", "requires")
        if (value := getattr(changes, name)) is not None
    }
    moved = lane._replace(**wanted)
    if moved != lane:
        lane_book(session).ensure(session, [moved])
        place = (moved.id, rank(decode(task), moved.priority))
        session.run(RELOCATE, (*place, now, task))
        session.run(RELOCATE_KEYS, (*place, task))
