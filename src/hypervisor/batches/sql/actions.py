"""Approved actions: stored with the approval, then moved from state to state.

Every change of state has its receipt or event in the same transaction. An action on the store
itself (adding a task) is part of that transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypervisor.batches.plans.action import (
    APPLIED,
    PLANNED,
    UNDONE,
    Action,
    ActionState,
    PlanChanged,
    Proposals,
)
from hypervisor.core.errors import NotFound, WrongState
from hypervisor.queue import lifecycle
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.sql import event_log, insert, receipts, steer
from hypervisor.queue.task import NewTask
from hypervisor.store.database import Row, Session

COLUMNS = "batch, number, task, kind, data, state, reason, at"
LAST = "SELECT coalesce(max(number), 0) FROM actions WHERE batch = ?"
ADD = f"INSERT INTO actions ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
ALL = f"SELECT {COLUMNS} FROM actions WHERE batch = ? ORDER BY number"
ONE = f"SELECT {COLUMNS} FROM actions WHERE batch = ? AND number = ?"
SET = "UPDATE actions SET state = ?, data = ?, reason = ?, at = ? WHERE batch = ? AND number = ?"
PROPOSING = """
SELECT t.id, d.title, d.result, t.chunk FROM tasks t JOIN details d ON d.task = t.id
LEFT JOIN chunks c ON c.batch = t.batch AND c.number = t.chunk
WHERE t.batch = ? AND t.batch <> '' AND t.id > ? AND t.state = 'done' AND d.result LIKE ?
    AND (c.state IS NULL OR c.state IN ('approved', 'free') OR t.chunk = ?)
ORDER BY t.id LIMIT ?
"""
HELD_BACK = """
SELECT c.state, count(*) FROM tasks t JOIN details d ON d.task = t.id
JOIN chunks c ON c.batch = t.batch AND c.number = t.chunk
WHERE t.batch = ? AND t.batch <> '' AND t.state = 'done' AND d.result LIKE ?
    AND c.state NOT IN ('approved', 'free') AND t.chunk <> ? GROUP BY c.state
"""
PROPOSES = '%"actions":%'
MADE = """
SELECT t.state, t.attempt, d.data FROM tasks t JOIN details d ON d.task = t.id WHERE t.id = ?
"""


def proposing(
    session: Session, batch: str, after: str, limit: int, chunk: int = 0
) -> list[Proposals]:
    """Done tasks whose results propose something, in approved or free chunks or in none, and in
    this chunk whatever its state."""
    rows = session.rows(PROPOSING, (batch, after, PROPOSES, chunk, limit))
    return [Proposals(row[0], row[1], event_log.load(row[2]), row[3]) for row in rows]


def held_back(session: Session, batch: str, chunk: int = 0) -> dict[str, int]:
    """How many such tasks are left out, by the state of their chunk."""
    rows = session.rows(HELD_BACK, (batch, PROPOSES, chunk))
    return {state: count for state, count in rows}  # noqa: C416


def every(session: Session, batch: str) -> list[Action]:
    return [_action(row) for row in session.rows(ALL, (batch,))]


def approve(
    session: Session,
    batch: str,
    new: Sequence[tuple[str, str, dict[str, Any]]],
    text: str,
    *,
    actor: str,
    now: int,
    after: int | None = None,
) -> list[Action]:
    """Store approved actions, each (task, kind, data), together with the approval. `after` must be
    the number of the last action; otherwise another host has approved a plan first."""
    session.lock(f"actions {batch}")
    last = session.rows(LAST, (batch,))[0][0]
    if after not in (None, last):
        raise PlanChanged(
            "someone else has just approved a plan. Nothing was changed; review it again."
        )
    added = [
        Action(batch, number, task, kind, data, PLANNED, None, now)
        for number, (task, kind, data) in enumerate(new, last + 1)
    ]
    session.run_many(ADD, [(*a[:4], event_log.dump(a.data), *a[5:]) for a in added])
    receipts.append_to_batch(session, batch, actor, [text], now)
    data = {"message": text, "actions": [last + 1, last + len(added)] if added else []}
    event_log.note(session, "plan", data, actor, now, batch=batch)
    return added


def move(
    session: Session,
    action: Action,
    state: ActionState,
    *,
    reason: str | None = None,
    receipt: str = "",
    actor: str,
    now: int,
) -> Action:
    """Set the state of an action, and store its data. `receipt`: the evidence, if any."""
    _check_unchanged(session, action)
    moved = action._replace(state=state, reason=reason, at=now)
    key = (action.batch, action.number)
    session.run(SET, (state, event_log.dump(moved.data), reason, now, *key))
    if receipt:
        # For the batch, not the task: a task's receipts are written to its file, which a plan must
        # leave as approved, and which undoing restores exactly.
        text = f"{receipt}, proposed by {action.task}"
        receipts.append_to_batch(session, action.batch, actor, [text], now)
    data = {"action": action.number, "now": state, **({"reason": reason} if reason else {})}
    event_log.note(session, "action", data, actor, now, task=action.task, batch=action.batch)
    return moved


def add_task(
    session: Session, action: Action, new: NewTask, receipt: str, *, actor: str, now: int
) -> Action:
    """Add the task of an action and mark the action as applied."""
    session.lock("keys")  # before any row is locked, as in a claim
    _check_unchanged(session, action)
    added = insert.add(session, [new], None, actor, now)
    if added.ids:
        task, is_ours = added.ids[0], True
    else:
        task, is_ours = _take_over(session, action, added.duplicates[0].task, actor, now)
    receipt = f"{receipt}: {task}" if is_ours else f"{receipt}, which already existed: {task}"
    applied = action._replace(data={**action.data, "made": task, "is_ours": is_ours})
    return move(session, applied, APPLIED, receipt=receipt, actor=actor, now=now)


def cancel_task(session: Session, action: Action, receipt: str, actor: str, now: int) -> Action:
    """Cancel the task that an action created, unless it has been started."""
    session.lock("keys")
    _check_unchanged(session, action)
    task = action.data["made"]
    rows = session.rows(MADE + session.for_update, (task,)) if action.data["is_ours"] else []
    if rows and rows[0][0] != lifecycle.CANCELLED:
        state, attempts, _ = rows[0]
        if attempts or state not in (lifecycle.INBOX, lifecycle.WAITING, lifecycle.ACTIVE):
            raise WrongState(f"the task {task} was started and is {state_name(state)}")
        steer.cancel(session, task, "the plan was undone", actor, now)
    receipt = f"{receipt}: {task}"
    return move(session, action, UNDONE, receipt=receipt, actor=actor, now=now)


def _take_over(
    session: Session, action: Action, task: str, actor: str, now: int
) -> tuple[str, bool]:
    """A task with that key already exists: reopen it if a plan of this batch created it and its
    undo cancelled it; otherwise leave it alone."""
    state, _, data = session.rows(MADE, (task,))[0]
    made_by = event_log.load(data)
    ours = isinstance(made_by, dict) and made_by.get("plan") == action.batch
    if not ours or state != lifecycle.CANCELLED:
        return task, False
    steer.requeue(session, task, "reopen", "planned again", actor, now=now)
    return task, True


def _check_unchanged(session: Session, action: Action) -> None:
    """A stale copy of an action must not change it."""
    rows = session.rows(ONE + session.for_update, (action.batch, action.number))
    if not rows:
        raise NotFound(f"this batch has no action {action.number}.")
    if rows[0][5] != action.state:
        raise WrongState(
            f"action {action.number} is {rows[0][5]}, not {action.state}. Nothing was changed."
        )


def _action(row: Row) -> Action:
    batch, number, task, kind, data, state, *rest = row
    return Action(batch, number, task, kind, event_log.load(data), ActionState(state), *rest)
