"""Exclusive keys: tasks that share one never run together.

In each lane at most one task per key is `active`: it holds the key there, and
the others queue for it. Claiming it turns the hold into a running one (lane 0),
which blocks the key in every lane; ending the attempt offers the key to the
best task in each lane. So a claim costs the same however many tasks share a
key, and a lane without workers does not hold up the others. Of two rivals in a
lane the better rank wins, even if the other was active first.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypervisor.queue.sql import event_log
from hypervisor.store.database import Session

RUNNING = 0  # the lane of a hold whose task is in progress

CONFLICTS = """
SELECT DISTINCT h.task, h.lane, t.rank, k.rank
FROM task_keys k
JOIN key_holds h ON h.key = k.key AND (h.lane = 0 OR h.lane = k.lane) AND h.task <> k.task
JOIN tasks t ON t.id = h.task
WHERE k.task = ?
"""
RIVALS = """
SELECT DISTINCT h.task FROM task_keys k
JOIN key_holds h ON h.key = k.key AND h.task <> k.task
WHERE k.task = ?
"""
BEST_IN_LANE = """
SELECT k.task FROM task_keys k
WHERE k.key = ? AND k.lane = ? AND k.queued = 1 AND NOT EXISTS (
    SELECT 1 FROM task_keys o
    JOIN key_holds h ON h.key = o.key AND (h.lane = 0 OR h.lane = o.lane)
    WHERE o.task = k.task)
ORDER BY k.rank LIMIT 1
"""
NEXT_LANE = "SELECT min(lane) FROM task_keys WHERE key = ? AND queued = 1 AND lane > ?"
HELD = "SELECT 1 FROM key_holds WHERE key = ? AND (lane = ? OR lane = 0) LIMIT 1"
HOLD = (
    "INSERT INTO key_holds (key, lane, task) SELECT key, lane, task FROM task_keys WHERE task = ?"
)
HOLD_RUNNING = (
    "INSERT INTO key_holds (key, lane, task) SELECT key, 0, task FROM task_keys WHERE task = ?"
)
DROP = "DELETE FROM key_holds WHERE task = ?"
SET_QUEUED = "UPDATE task_keys SET queued = ? WHERE task = ?"
ENQUEUE = """
UPDATE task_keys SET queued = 1 WHERE task = ? AND EXISTS (
    SELECT 1 FROM tasks
    WHERE id = ? AND state = 'waiting' AND open_deps = 0 AND held = 0 AND start_at IS NULL)
"""
KEYS_OF = "SELECT key FROM task_keys WHERE task = ? ORDER BY key"
SET_STATE = "UPDATE tasks SET state = ?, updated_at = ? WHERE id = ?"
BATCH_OF = "SELECT batch FROM tasks WHERE id = ?"


def reserve(session: Session, task: str, now: int) -> None:
    """Make an otherwise ready task active if its keys are free, else queue it for them."""
    session.lock("keys")
    rivals = session.rows(CONFLICTS, (task,))
    if any(lane == RUNNING or rank < own for _, lane, rank, own in rivals):
        session.run(SET_QUEUED, (1, task))
        return
    freed = [key for rival in {r[0] for r in rivals} for key in _displace(session, rival, now)]
    session.run(HOLD, (task,))
    session.run(SET_QUEUED, (0, task))
    _move(session, task, "ready", "active", now)
    offer(session, freed, now)


def take(session: Session, task: str, now: int) -> set[str]:
    """The task is being claimed: block its keys in every lane. Returns the displaced tasks."""
    session.lock("keys")
    rivals = {row[0] for row in session.rows(RIVALS, (task,))}
    freed = [key for rival in sorted(rivals) for key in _displace(session, rival, now)]
    session.run(DROP, (task,))
    session.run(HOLD_RUNNING, (task,))
    offer(session, freed, now)
    return rivals


def drop(session: Session, task: str) -> list[str]:
    """Release all keys of the task. Returns them, to be offered."""
    session.lock("keys")
    session.run(DROP, (task,))
    session.run(SET_QUEUED, (0, task))
    return [row[0] for row in session.rows(KEYS_OF, (task,))]


def enqueue(session: Session, task: str) -> None:
    """Queue an otherwise ready task for its keys; `offer` then gives each to the best task."""
    session.run(ENQUEUE, (task, task))


def offer(session: Session, keys: Iterable[str], now: int) -> None:
    """Give each free key to the best queued task of each lane."""
    for key in sorted(set(keys)):
        lane = session.rows(NEXT_LANE, (key, RUNNING))[0][0]
        while lane is not None:
            if not session.rows(HELD, (key, lane)):
                for (task,) in session.rows(BEST_IN_LANE, (key, lane)):
                    reserve(session, task, now)
            lane = session.rows(NEXT_LANE, (key, lane))[0][0]


def _displace(session: Session, task: str, now: int) -> list[str]:
    keys = drop(session, task)
    session.run(SET_QUEUED, (1, task))
    _move(session, task, "hold", "waiting", now)
    return keys


def _move(session: Session, task: str, event: str, state: str, now: int) -> None:
    session.run(SET_STATE, (state, now, task))
    batch = session.rows(BATCH_OF, (task,))[0][0]
    event_log.write(session, now, [event_log.Line(event, task, batch, None, state, "")])
