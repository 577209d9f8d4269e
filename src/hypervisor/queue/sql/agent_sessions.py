"""Agent sessions: one row for each run of an agent program, and their total cost.

During a run, its row has the figures so far; the first recorded end stays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypervisor.core import randomness
from hypervisor.core.ids import encode, new_numbers
from hypervisor.queue.agent_session import (
    AgentSession,
    DaySpent,
    Figures,
    NewSession,
    Spent,
    Tokens,
)
from hypervisor.queue.lease import Worker
from hypervisor.queue.sql import event_log
from hypervisor.store.database import Session, marks, pad, slices

DAY = 86_400_000

OPEN = """
INSERT INTO sessions
    (id, agent, account, batch, worker, task, attempt, resumes, started_at, spend_code)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING RETURNING id
"""
# What went through the gateway was counted there; of the agent's own figures, only an exact cost is
# better.
SET_FIGURES = """
    input_tokens = CASE WHEN spend_code = '' THEN ? ELSE input_tokens END,
    output_tokens = CASE WHEN spend_code = '' THEN ? ELSE output_tokens END,
    cached_tokens = CASE WHEN spend_code = '' THEN ? ELSE cached_tokens END,
    cost_micros = CASE WHEN spend_code = '' OR ? = 1 THEN ? ELSE cost_micros END,
    estimated = CASE WHEN spend_code = '' OR ? = 1 THEN ? ELSE estimated END,
    turns = ?"""
UPDATE = f"""
UPDATE sessions SET session = CASE WHEN ? = '' THEN session ELSE ? END,{SET_FIGURES}
WHERE id = ? AND ended_at IS NULL
"""
CLOSE = f"""
UPDATE sessions SET ended_at = ?, outcome = ?,{SET_FIGURES}, denied = ?
WHERE id = ? AND ended_at IS NULL
RETURNING input_tokens + output_tokens + cached_tokens, cost_micros,
    agent, batch, worker, task, attempt
"""
SESSIONS = """
SELECT id, agent, account, batch, worker, task, attempt, resumes, session, started_at, ended_at,
    outcome, input_tokens, output_tokens, cached_tokens, cost_micros, estimated, turns,
    denied
FROM sessions WHERE {} ORDER BY id DESC LIMIT ?
"""
SPENT = """
SELECT coalesce(sum(input_tokens + output_tokens + cached_tokens), 0),
    coalesce(sum(cost_micros), 0),
    coalesce(sum(CASE WHEN cost_micros > 0 THEN estimated ELSE 0 END), 0),
    coalesce(sum(CASE WHEN cost_micros IS NULL
        AND input_tokens + output_tokens + cached_tokens > 0 THEN 1 ELSE 0 END), 0)
FROM sessions WHERE {}
"""
BY_DAY = """
SELECT agent, started_at / 86400000, count(*),
    coalesce(sum(input_tokens + output_tokens + cached_tokens), 0), coalesce(sum(cost_micros), 0)
FROM sessions WHERE started_at >= ? GROUP BY agent, started_at / 86400000 ORDER BY 2 DESC, 1
"""
ENDED = "SELECT id, batch, worker FROM sessions WHERE id IN ({}) AND ended_at IS NOT NULL"
STILL_NEEDED = """
SELECT DISTINCT a.worker FROM tasks t JOIN attempts a ON a.task = t.id
WHERE t.batch = ? AND t.batch <> '' AND t.state NOT IN ('done', 'failed', 'cancelled')
"""
WORKER = """
SELECT w.id, w.name, w.host, w.boot, w.pid, w.pid_start FROM sessions s
JOIN workers w ON w.id = s.worker WHERE s.id = ?
"""
# `task <> ''` lets both databases use the partial index.
OF = {
    "batch": "batch = ?",
    "task": "task = ? AND task <> ''",
    "worker": "worker = ?",
    "since": "started_at >= ?",
}


def open_session(session: Session, new: NewSession, now: int) -> str:
    """Record that an agent program starts. Returns the id of the row."""
    while True:
        id = encode(new_numbers(1, now, randomness.entropy())[0])
        values = (id, new.agent, new.account, new.batch, new.worker, new.task, new.attempt)
        if session.rows(OPEN, (*values, new.resumes, now, new.spend_code)):
            break
    data = {"id": id, "agent": new.agent, **({"resumes": new.resumes} if new.resumes else {})}
    _log(session, "session", (new.batch, new.worker, new.task, new.attempt), data, now)
    return id


def worker_of(session: Session, id: str) -> Worker | None:
    """The worker of a session."""
    return next((Worker(*row) for row in session.rows(WORKER, (id,))), None)


def update(session: Session, id: str, name: str, figures: Figures) -> None:
    """Record the totals so far; the agent's `name` for the session, once known, stays."""
    session.run(UPDATE, (name, name, *_values(figures), id))


def close(
    session: Session,
    id: str,
    outcome: str,
    figures: Figures,
    denied: Sequence[str] = (),
    *,
    now: int,
) -> None:
    """Record how it ended; the first outcome stays."""
    refused = event_log.dump(list(denied)) if denied else ""
    for tokens, cost, agent, *of in session.rows(
        CLOSE, (now, outcome, *_values(figures), refused, id)
    ):
        data = {"id": id, "agent": agent, "outcome": outcome, "tokens": tokens}
        if cost is not None:
            data["cost_micros"] = cost
        if denied:
            data["denied"] = list(denied)
        _log(session, "session_end", of, data, now)


def sessions(
    session: Session,
    batch: str | None = None,
    task: str | None = None,
    worker: str | None = None,
    limit: int = 100,
) -> list[AgentSession]:
    """The newest first."""
    tests, values = _where(batch=batch, task=task, worker=worker)
    return [_session(row) for row in session.rows(SESSIONS.format(tests), (*values, limit))]


def spent(
    session: Session, batch: str | None = None, task: str | None = None, since: int = 0
) -> Spent:
    """The cost of the sessions of a batch, a task, or all, started since then."""
    tests, values = _where(batch=batch, task=task, since=since or None)
    tokens, cost, estimated, unpriced = session.rows(SPENT.format(tests), values)[0]
    return Spent(int(tokens), int(cost), bool(estimated), int(unpriced))


def by_day(session: Session, since: int) -> list[DaySpent]:
    """The cost of each agent on each day (of UTC), the last day first."""
    rows = session.rows(BY_DAY, (since,))
    return [DaySpent(agent, day * DAY, *map(int, more)) for agent, day, *more in rows]


def settled(session: Session, ids: Sequence[str]) -> frozenset[str]:
    """The sessions that have ended and whose worker has no unfinished task left."""
    ended = [
        row
        for part in slices(ids)
        for row in session.rows(ENDED.format(marks(len(part))), pad(part))
    ]
    needed = {
        (batch, row[0])
        for batch in sorted({batch for _, batch, _ in ended})
        for row in session.rows(STILL_NEEDED, (batch,))
    }
    return frozenset(id for id, batch, worker in ended if (batch, worker) not in needed)


def _values(figures: Figures) -> tuple[Any, ...]:
    """For SET_FIGURES."""
    tokens, cost, estimated, turns = figures
    is_exact = int(cost is not None and not estimated)
    return (*tokens, is_exact, cost, is_exact, int(estimated), turns)


def _where(**wanted: Any) -> tuple[str, list[Any]]:
    filters = {name: value for name, value in wanted.items() if value is not None}
    return " AND ".join(OF[name] for name in filters) or "1 = 1", [*filters.values()]


def _session(row: tuple[Any, ...]) -> AgentSession:
    denied = tuple(json.loads(row[18])) if row[18] else ()
    figures = (Tokens(*row[12:15]), row[15], bool(row[16]), row[17])
    return AgentSession._make((*row[:12], *figures, denied))


def _log(session: Session, kind: str, of: Any, data: dict[str, Any], now: int) -> None:
    batch, worker, task, attempt = of
    line = event_log.Line(kind, task, batch, attempt or None, None, worker, event_log.dump(data))
    event_log.write(session, now, [line])
