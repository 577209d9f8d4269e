"""Stored readiness: a queued task is `active` exactly when nothing stands in its way.

Whatever frees a task calls `promote` in the same transaction; whatever puts
something in its way calls `hold`. Nothing is computed at claim time.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.queue.sql import event_log, exclusive_keys
from hypervisor.queue.sql.lanes import get_lane
from hypervisor.store.database import Session, marks, pad, slices

UNHINDERED = """
SELECT id, lane, batch FROM tasks
WHERE id IN ({}) AND state = 'waiting' AND open_deps = 0 AND held = 0 AND start_at IS NULL
ORDER BY rank
"""
ACTIVATE = "UPDATE tasks SET state = 'active', updated_at = ? WHERE id IN ({})"
DEPENDENTS = "SELECT DISTINCT task FROM dependencies WHERE needs IN ({}) ORDER BY task"
LOCK = "SELECT id FROM tasks WHERE id IN ({}) ORDER BY id"
COUNT_DOWN = """
UPDATE tasks SET open_deps = open_deps -
    (SELECT count(*) FROM dependencies d WHERE d.task = tasks.id AND d.needs IN ({0}))
WHERE id IN ({1})
"""
ACTIVE_AMONG = "SELECT id, lane, batch FROM tasks WHERE id IN ({}) AND state = 'active'"
DEACTIVATE = "UPDATE tasks SET state = 'waiting', updated_at = ? WHERE id IN ({})"
COUNT_UP = "UPDATE tasks SET open_deps = open_deps + 1 WHERE id IN ({})"
LEAVE_LINE = "UPDATE task_keys SET queued = 0 WHERE task IN ({}) AND queued = 1"
DUE = """
UPDATE tasks SET start_at = NULL WHERE id IN (
    SELECT id FROM tasks
    WHERE state = 'waiting' AND start_at IS NOT NULL AND start_at <= ?
    ORDER BY start_at LIMIT ?)
    AND state = 'waiting' AND start_at <= ?
RETURNING id
"""
ANY_DUE = """
SELECT 1 FROM tasks WHERE state = 'waiting' AND start_at IS NOT NULL AND start_at <= ? LIMIT 1
"""
SWEEP_LIMIT = 1000


def promote(session: Session, tasks: Sequence[str], now: int) -> None:
    """Turn those waiting tasks active that nothing hinders any more."""
    for some in slices(tasks):
        rows = session.rows(UNHINDERED.format(marks(len(some))), pad(some))
        keyed = [task for task, lane, _ in rows if get_lane(session, lane).keyed]
        plain = [(task, batch) for task, lane, batch in rows if not get_lane(session, lane).keyed]
        if plain:
            ids = [task for task, _ in plain]
            session.run(ACTIVATE.format(marks(len(ids))), [now, *pad(ids)])
            event_log.write(
                session,
                now,
                [event_log.Line("ready", task, batch, None, "active", "") for task, batch in plain],
            )
        for task in keyed:
            exclusive_keys.reserve(session, task, now)


def dependency_done(session: Session, done: Sequence[str], now: int) -> None:
    """Count these finished tasks off their dependents and promote what that frees."""
    in_done = marks(len(done))
    dependents = [r[0] for r in session.rows(DEPENDENTS.format(in_done), pad(done))]
    for some in slices(dependents):
        _lock(session, some)
        session.run(COUNT_DOWN.format(in_done, marks(len(some))), [*pad(done), *pad(some)])
        promote(session, some, now)


def dependency_reopened(session: Session, needed: str, now: int) -> None:
    """A finished task is open again: its dependents that have not started wait for it."""
    dependents = [r[0] for r in session.rows(DEPENDENTS.format("?"), (needed,))]
    for some in slices(dependents):
        _lock(session, some)
        # First, or a key that `hold` frees would go to one of them that must wait as well.
        session.run(LEAVE_LINE.format(marks(len(some))), pad(some))
        hold(session, some, now)
        session.run(COUNT_UP.format(marks(len(some))), pad(some))


def hold(session: Session, tasks: Sequence[str], now: int) -> None:
    """Turn those of the tasks that are active back into waiting ones."""
    rows = session.rows(ACTIVE_AMONG.format(marks(len(tasks))), pad(tasks))
    if not rows:
        return
    ids = [row[0] for row in rows]
    freed = [
        key
        for task, lane, _ in rows
        if get_lane(session, lane).keyed
        for key in exclusive_keys.drop(session, task)
    ]
    session.run(DEACTIVATE.format(marks(len(ids))), [now, *pad(ids)])
    event_log.write(
        session,
        now,
        [event_log.Line("hold", task, batch, None, "waiting", "") for task, _, batch in rows],
    )
    exclusive_keys.offer(session, freed, now)


def if_later(start_at: int | None, now: int) -> int | None:
    """A start time that has passed is none."""
    return start_at if start_at is not None and start_at > now else None


def any_due(session: Session, now: int) -> bool:
    return bool(session.rows(ANY_DUE, (now,)))


def promote_due(session: Session, now: int) -> int:
    """Promote tasks whose start time has come, a bounded number at once."""
    due = sorted(row[0] for row in session.rows(DUE, (now, SWEEP_LIMIT, now)))
    promote(session, due, now)
    return len(due)


def _lock(session: Session, tasks: Sequence[str]) -> None:
    """Take the rows in one order, so that two finishing tasks cannot block each other."""
    if session.for_update:
        session.rows(LOCK.format(marks(len(tasks))) + session.for_update, pad(tasks))
