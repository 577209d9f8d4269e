"""What spans are made of. Read only, except for how far the sender has come."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.queue.sql.lanes import get_lane
from hypervisor.store.database import Row, Session, marks, pad, slices

ATTEMPTS = """
SELECT a.task, a.number, a.claimed_at, a.ended_at, a.outcome, a.reason, a.cpu_ms, a.peak_kb,
    w.host, w.agent, t.batch, t.created_at, t.lane
FROM attempts a JOIN tasks t ON t.id = a.task LEFT JOIN workers w ON w.id = a.worker
WHERE a.task IN ({}) ORDER BY a.task, a.number
"""
USED = """
SELECT task, attempt, sum(input_tokens), sum(output_tokens), sum(cost_micros), sum(turns)
FROM sessions WHERE task IN ({}) AND task <> '' GROUP BY task, attempt
"""
LAST_OF_BATCH = """
SELECT a.ended_at, w.host
FROM tasks t JOIN attempts a ON a.task = t.id LEFT JOIN workers w ON w.id = a.worker
WHERE t.batch = ? AND t.batch <> '' AND a.ended_at IS NOT NULL
ORDER BY a.ended_at DESC, a.task DESC LIMIT 1
"""


class Used(NamedTuple):
    """By an agent in an attempt."""

    input_tokens: int
    output_tokens: int
    cost_micros: int | None
    turns: int


class TracedAttempt(NamedTuple):
    task: str
    number: int
    claimed_at: int
    ended_at: int | None
    outcome: str | None
    reason: str | None
    cpu_ms: int | None
    peak_kb: int | None
    host: str
    agent: str
    batch: str
    created_at: int  # of its task
    type: str
    used: Used | None = None


def attempts(session: Session, tasks: Sequence[str]) -> dict[str, list[TracedAttempt]]:
    """All attempts of these tasks, by task and in order."""
    found: dict[str, list[TracedAttempt]] = {}
    for part in slices(sorted(set(tasks))):
        used = {
            (row[0], row[1]): Used(int(row[2] or 0), int(row[3] or 0), row[4], int(row[5] or 0))
            for row in session.rows(USED.format(marks(len(part))), pad(part))
        }
        for row in session.rows(ATTEMPTS.format(marks(len(part))), pad(part)):
            made = _attempt(row, get_lane(session, row[12]).type)
            own = made._replace(used=used.get((made.task, made.number)))
            found.setdefault(own.task, []).append(own)
    return found


def _attempt(row: Row, kind: str) -> TracedAttempt:
    host, agent, batch = (name or "" for name in row[8:11])
    return TracedAttempt._make((*row[:8], host, agent, batch, row[11], kind, None))


def last_of_batch(session: Session, batch: str) -> tuple[int, str] | None:
    """When the last attempt of a batch ended, and on which host."""
    row = next(iter(session.rows(LAST_OF_BATCH, (batch,))), None)
    return None if row is None else (int(row[0]), row[1] or "")
