"""What a person does to a task from outside a claim: accept, cancel, reopen, update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypervisor.core.errors import WrongState
from hypervisor.core.ids import decode
from hypervisor.queue import lifecycle
from hypervisor.queue.priority import rank
from hypervisor.queue.sql import (
    dependencies,
    event_log,
    exclusive_keys,
    holds,
    readiness,
    settlement,
)
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

# What decides whether and when a task can be claimed; a new title does not.
MOVING = ("type", "priority", "branch", "assignee", "requires", "after", "start_at")


def cancel(session: Session, task: str, reason: str, actor: str, now: int) -> str:
    session.lock("keys")  # before any row is locked, as in a claim
    row = _find(session, task)
    before = row[0]
    lifecycle.next_state(before, "cancel", task)
    if before == lifecycle.IN_PROGRESS:
        settlement.end_without_token(session, task, row[3], "cancel", reason, now, actor)
    else:
        freed = _leave_queue(session, task, row)
        session.run(CANCEL, (reason, now, task))
        _log(session, task, "cancel", lifecycle.CANCELLED, row[2], reason, actor, now)
        exclusive_keys.offer(session, freed, now)
    return lifecycle.CANCELLED


def requeue(
    session: Session,
    task: str,
    event: str,
    reason: str,
    actor: str,
    now: int,
    attempts: int | None = None,
) -> str:
    """Put a task (back) into the queue with a clean slate: `reopen` or `accept`; if `attempts`
    are given, only while it has had no more than these."""
    session.lock("keys")
    row = _find(session, task)
    before = row[0]
    if attempts is not None and row[3] != attempts:
        raise WrongState(
            f"{task} has had {row[3]} attempts by now, not {attempts}. Nothing was changed; look "
            "again whether it shall be done once more."
        )
    lifecycle.next_state(before, event, task)
    start_at = None if event == "reopen" else readiness.if_later(row[5], now)
    keyed = get_lane(session, row[1]).keyed
    after = lifecycle.queue_state(row[4], start_at, keyed, bool(row[6]))
    session.run(ENQUEUE, (after, start_at, now, task))
    if event == "reopen":
        holds.undecide(session, row[2], [row[7]])
    _log(session, task, event, after, row[2], reason, actor, now)
    if before == lifecycle.DONE:
        readiness.dependency_reopened(session, task, now)
    readiness.promote(session, [task], now)
    return str(_find(session, task)[0])


def revoke_claim(session: Session, task: str, reason: str, actor: str, now: int) -> str:
    """End a claim on a person's word: the task goes back into the queue unharmed."""
    session.lock("keys")
    row = _find(session, task)
    lifecycle.next_state(row[0], "release", task)
    settlement.end_without_token(session, task, row[3], "release", reason, now, actor)
    return str(_find(session, task)[0])


def update(session: Session, task: str, changes: Changes, actor: str, now: int) -> str:
    session.lock("keys")
    row = _find(session, task)
    moves = any(getattr(changes, name) is not None for name in MOVING)
    requeue = moves and row[0] in (lifecycle.WAITING, lifecycle.ACTIVE)
    if requeue:
        readiness.hold(session, [task], now)
    _change_details(session, task, changes)
    _change_lane(session, task, row[1], changes, now)
    if changes.after is not None:
        _refuse_if_started(task, row[0])
        dependencies.replace(session, task, changes.after)
    if changes.start_at is not None:
        later = readiness.if_later(changes.start_at, now)
        if later is not None:
            _refuse_if_started(task, row[0])
        session.run(SET_START, (later, task))
    named = sorted(name for name, value in changes._asdict().items() if value is not None)
    event_log.write(
        session,
        now,
        [
            event_log.Line(
                "update", task, row[2], None, None, actor, event_log.dump({"fields": named})
            )
        ],
    )
    if requeue and get_lane(session, row[1]).keyed:
        freed = exclusive_keys.drop(session, task)
        exclusive_keys.line_up(session, task)
        exclusive_keys.offer(session, freed, now)
    elif requeue:
        readiness.promote(session, [task], now)
    return str(_find(session, task)[0])


def _find(session: Session, task: str) -> Row:
    return session.rows(FIND + session.for_update, (task,))[0]


def _leave_queue(session: Session, task: str, row: Row) -> Sequence[str]:
    return exclusive_keys.drop(session, task) if get_lane(session, row[1]).keyed else ()


def _log(
    session: Session,
    task: str,
    event: str,
    state: str,
    batch: str,
    reason: str,
    actor: str,
    now: int,
) -> None:
    data = event_log.dump({"reason": reason}) if reason else None
    event_log.write(session, now, [event_log.Line(event, task, batch, None, state, actor, data)])


def _refuse_if_started(task: str, state: str) -> None:
    if state not in (lifecycle.INBOX, lifecycle.WAITING, lifecycle.ACTIVE):
        raise WrongState(
            f"{task} is {state}: what it waits for can no longer change. Nothing was changed; "
            "once it is back in the queue, it can."
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
