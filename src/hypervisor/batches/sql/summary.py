"""The totals of a batch, computed by the database."""

from __future__ import annotations

from hypervisor.queue.history import Totals
from hypervisor.queue.sql import event_log
from hypervisor.queue.task import Json
from hypervisor.store.database import Session

# `batch <> ''` lets both databases use the partial index.
TASKS = """
SELECT state, count(*), sum(attempt) FROM tasks WHERE batch = ? AND batch <> ''
GROUP BY state ORDER BY state
"""
ATTEMPTS = """
SELECT coalesce(sum(coalesce(a.ended_at, ?) - a.claimed_at), 0), coalesce(sum(a.cpu_ms), 0),
    coalesce(max(a.peak_kb), 0), coalesce(min(a.claimed_at), 0),
    coalesce(max(coalesce(a.ended_at, ?)), 0)
FROM tasks t JOIN attempts a ON a.task = t.id WHERE t.batch = ? AND t.batch <> ''
"""
RESULTS = """
SELECT t.id, d.result FROM tasks t JOIN details d ON d.task = t.id
WHERE t.batch = ? AND t.batch <> '' AND t.state = 'done' AND d.result IS NOT NULL AND t.id > ?
ORDER BY t.id LIMIT ?
"""
UNCHANGED = """
SELECT count(*) FROM tasks t JOIN landings l ON l.task = t.id AND l.attempt = t.attempt
WHERE t.batch = ? AND t.batch <> '' AND t.state = 'done' AND l.hash = ''
"""


def totals(session: Session, batch: str, now: int) -> Totals:
    """All tasks and attempts of a batch, added up."""
    states = session.rows(TASKS, (batch,))
    sums = session.rows(ATTEMPTS, (now, now, batch))[0]
    attempts = sum(int(row[2]) for row in states)
    return Totals({row[0]: row[1] for row in states}, attempts, *map(int, sums))


def unchanged(session: Session, batch: str) -> int:
    """How many tasks are done without any change."""
    return int(session.rows(UNCHANGED, (batch,))[0][0])


def results(session: Session, batch: str, after: str, limit: int) -> list[tuple[str, Json]]:
    """The results of done tasks that have one, in the order of their ids."""
    rows = session.rows(RESULTS, (batch, after, limit))
    return [(task, event_log.load(text)) for task, text in rows]
