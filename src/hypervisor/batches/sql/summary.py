"""Queries of those who follow a batch: whether anything runs, and what it all took.

The database adds it up, so that no process has to hold the tasks."""

from __future__ import annotations

from hypervisor.queue.history import Totals
from hypervisor.queue.sql import event_log
from hypervisor.queue.task import Json
from hypervisor.store.database import Session

# `batch <> ''` is what tells both databases that the index of batches will do.
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


def totals(session: Session, batch: str, now: int) -> Totals:
    """All tasks and attempts of a batch, added up."""
    states = session.rows(TASKS, (batch,))
    sums = session.rows(ATTEMPTS, (now, now, batch))[0]
    attempts = sum(int(row[2]) for row in states)
    return Totals({row[0]: row[1] for row in states}, attempts, *map(int, sums))


def results(session: Session, batch: str, after: str, limit: int) -> list[tuple[str, Json]]:
    """The results of done tasks that have one, in the order of their ids."""
    rows = session.rows(RESULTS, (batch, after, limit))
    return [(task, event_log.load(text)) for task, text in rows]
