"""Stops: requests to end running attempts, read by their workers."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.queue.sql import event_log
from hypervisor.queue.stop import Stop
from hypervisor.store.database import Session, marks, pad

ASK_STOP = """
INSERT INTO stops (task, attempt, next, reason, actor, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (task) DO UPDATE SET attempt = excluded.attempt, next = excluded.next,
    reason = excluded.reason, actor = excluded.actor, at = excluded.at
WHERE stops.attempt <> excluded.attempt OR stops.next <> 'cancel' OR excluded.next = 'cancel'
RETURNING task
"""
RUN_ATTEMPT = """
SELECT t.attempt, t.batch FROM tasks t
JOIN attempts a ON a.task = t.id AND a.number = t.attempt
JOIN workers w ON w.id = a.worker
WHERE t.id = ? AND t.state = 'in_progress' AND w.batch IS NOT NULL AND w.ended_at IS NULL
"""
STOPS = """
SELECT s.task, s.attempt, s.next, s.reason, s.actor FROM stops s
JOIN tasks t ON t.id = s.task AND t.attempt = s.attempt AND t.state = 'in_progress'
WHERE s.task IN ({})
"""
MARK = "SELECT count(*), coalesce(max(at), 0) FROM stops"
FORGET_STOP = "DELETE FROM stops WHERE task = ?"


def ask_stop(session: Session, task: str, after: str, reason: str, actor: str, *, now: int) -> bool:
    """Ask the worker that runs the task to stop. False if no worker of a run does. The last request
    counts, but a cancel stays a cancel: its caller was told that the task will be cancelled."""
    for attempt, batch in session.rows(RUN_ATTEMPT + session.wait_locked, (task,)):
        if session.rows(ASK_STOP, (task, attempt, after, reason, actor, now)):
            data = event_log.dump({"next": after, "reason": reason})
            event_log.write(
                session, now, [event_log.Line("stop", task, batch, attempt, None, actor, data)]
            )
        return True
    return False


def stops(session: Session, tasks: Sequence[str]) -> list[Stop]:
    if not tasks:
        return []
    return [Stop(*row) for row in session.rows(STOPS.format(marks(len(tasks))), pad(tasks))]


def mark(session: Session) -> str:
    """Changes when a stop is requested."""
    return " ".join(map(str, session.rows(MARK)[0]))


def forget_stop(session: Session, task: str) -> None:
    session.run(FORGET_STOP, (task,))
