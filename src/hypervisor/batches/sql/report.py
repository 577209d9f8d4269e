"""Queries for pre-flight and for the report of a batch. Read only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypervisor.queue.event import current_data
from hypervisor.queue.history import AttemptLine, Experience
from hypervisor.queue.lifecycle import DONE
from hypervisor.queue.receipt import Receipt
from hypervisor.queue.sql import event_log
from hypervisor.queue.sql.insert import BY_KEY
from hypervisor.store.database import Session, marks, pad, slices

RECENT = 1_000
FEW_BATCHES = 3

# `batch <> ''` lets both databases use the partial index.
ATTEMPTS = """
SELECT t.id, a.number, w.name, a.worker, a.claimed_at, a.ended_at, a.outcome, a.cpu_ms, a.peak_kb
FROM tasks t JOIN attempts a ON a.task = t.id LEFT JOIN workers w ON w.id = a.worker
WHERE t.batch = ? AND t.batch <> '' AND t.id > ? AND t.id <= ? ORDER BY t.id, a.number
"""
PAGE_END = """
SELECT max(id) FROM (
    SELECT id FROM tasks WHERE batch = ? AND batch <> '' AND id > ? ORDER BY id LIMIT ?) AS page
"""
BATCHES_OF_TYPE = """
SELECT DISTINCT batch FROM lanes WHERE type = ? AND batch <> '' ORDER BY batch DESC LIMIT ?
"""
EXPERIENCE = """
SELECT count(*), avg(took), avg(output) FROM (
    SELECT a.ended_at - a.claimed_at AS took, a.output_bytes AS output
    FROM tasks t JOIN attempts a ON a.task = t.id
    WHERE t.batch = ? AND t.batch <> '' AND a.ended_at IS NOT NULL AND a.cpu_ms IS NOT NULL
    ORDER BY t.id DESC LIMIT ?) AS recent
"""
LAST_RECEIPTS = """
SELECT chain, number, task, attempt, at, actor, text, hash FROM receipts
WHERE chain = ? ORDER BY number DESC LIMIT ?
"""
COUNT_RECEIPTS = "SELECT number FROM receipt_chains WHERE chain = ?"
NOTED = "SELECT task, data FROM events WHERE kind = ? AND batch = ? AND at >= ? ORDER BY id"


def states_of_keys(session: Session, batch: str, digests: Sequence[str]) -> dict[str, str]:
    """The states of those tasks of a batch whose keys have these digests."""
    return {
        row[0]: row[2]
        for page in slices(digests)
        for row in session.rows(BY_KEY.format(marks(len(page))), [batch, *pad(page)])
    }


def done_by_key(session: Session, batch: str, digests: Sequence[str]) -> dict[str, str]:
    """Those tasks of a batch that are done and whose keys have these digests, by digest."""
    return {
        row[0]: row[1]
        for page in slices(digests)
        for row in session.rows(BY_KEY.format(marks(len(page))), [batch, *pad(page)])
        if row[2] == DONE
    }


def attempts(session: Session, batch: str, after: str, tasks: int) -> tuple[str, list[AttemptLine]]:
    """The last task of the page of tasks after `after` ("" if there are none), and the attempts of
    the page."""
    last = session.rows(PAGE_END, (batch, after, tasks))[0][0]
    if last is None:
        return "", []
    rows = session.rows(ATTEMPTS, (batch, after, last))
    return last, [AttemptLine._make((*row[:2], row[2] or row[3], *row[3:])) for row in rows]


def experience(session: Session, kind: str, batch: str | None) -> Experience:
    """The average usage of recent attempts of this batch, else of batches of its type."""
    similar = [row[0] for row in session.rows(BATCHES_OF_TYPE, (kind, FEW_BATCHES))]
    for batch_id in [batch, *similar]:
        count, duration, output = session.rows(EXPERIENCE, (batch_id or "", RECENT))[0]
        if count:
            return Experience(count, _rounded(duration), _rounded(output))
    return Experience(0, None, None)


def last_receipts(session: Session, chain: str, limit: int) -> tuple[int, list[Receipt]]:
    """How many receipts a chain has, and the last of them in order."""
    receipts = [Receipt(*row) for row in session.rows(LAST_RECEIPTS, (chain, limit))]
    count = next((int(row[0]) for row in session.rows(COUNT_RECEIPTS, (chain,))), 0)
    return max(count, len(receipts)), receipts[::-1]


def _rounded(value: object) -> int | None:
    return None if value is None else round(float(str(value)))


def noted(session: Session, kind: str, batch: str, since: int) -> dict[str, Any]:
    """The tasks of a batch with events of a kind since then, and the data of the last one."""
    rows = session.rows(NOTED, (kind, batch, since))
    return {task: current_data(event_log.load(data)) for task, data in rows}
