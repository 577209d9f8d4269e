"""Agent sessions: one row for each run of an agent program, and what they cost together.

While it runs, a row says what the stream has told so far; the first end that is
told stays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypervisor.agents.session import AgentSession, Figures, NewSession, Spent
from hypervisor.agents.stream_state import Tokens
from hypervisor.core import randomness
from hypervisor.core.ids import encode, new_numbers
from hypervisor.queue.sql import event_log
from hypervisor.runs.spec import TaskReport
from hypervisor.store.database import Session, marks, pad, slices

OPEN = """
INSERT INTO sessions
    (id, agent, account, batch, worker, task, attempt, resumes, started_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING RETURNING id
"""
UPDATE = """
UPDATE sessions SET session = CASE WHEN ? = '' THEN session ELSE ? END,
    input_tokens = ?, output_tokens = ?, cached_tokens = ?, cost_micros = ?, estimated = ?,
    turns = ?
WHERE id = ? AND ended_at IS NULL
"""
CLOSE = """
UPDATE sessions SET ended_at = ?, outcome = ?,
    input_tokens = ?, output_tokens = ?, cached_tokens = ?, cost_micros = ?, estimated = ?,
    turns = ?, denied = ?
WHERE id = ? AND ended_at IS NULL
RETURNING agent, batch, worker, task, attempt
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
ENDED = "SELECT id, batch, worker FROM sessions WHERE id IN ({}) AND ended_at IS NOT NULL"
STILL_NEEDED = """
SELECT DISTINCT a.worker FROM tasks t JOIN attempts a ON a.task = t.id
WHERE t.batch = ? AND t.batch <> '' AND t.state NOT IN ('done', 'failed', 'cancelled')
"""
ANY_OF_BATCH = "SELECT 1 FROM sessions WHERE batch = ? LIMIT 1"
FIGURES = """
SELECT task, input_tokens + output_tokens + cached_tokens, cost_micros, estimated, outcome
FROM sessions WHERE task IN ({}) AND task <> '' ORDER BY task, id
"""
# `task <> ''` is what tells both databases that the partial index will do.
OF = {
    "batch": "batch = ?",
    "task": "task = ? AND task <> ''",
    "worker": "worker = ?",
    "since": "started_at >= ?",
}


def open_session(session: Session, new: NewSession, now: int) -> str:
    """Write down that an agent program starts. Returns the id of the row."""
    while True:
        fresh = encode(new_numbers(1, now, randomness.entropy())[0])
        values = (fresh, new.agent, new.account, new.batch, new.worker, new.task, new.attempt)
        if session.rows(OPEN, (*values, new.resumes, now)):
            break
    data = {"id": fresh, "agent": new.agent, **({"resumes": new.resumes} if new.resumes else {})}
    _log(session, "session", (new.batch, new.worker, new.task, new.attempt), data, now)
    return fresh


def update(session: Session, id: str, name: str, figures: Figures) -> None:
    """What the stream has shown so far, in all; the agent's `name` for it, once known, stays."""
    tokens, cost, estimated, turns = figures
    session.run(UPDATE, (name, name, *tokens, cost, int(estimated), turns, id))


def close(
    session: Session,
    id: str,
    outcome: str,
    figures: Figures,
    denied: Sequence[str] = (),
    *,
    now: int,
) -> None:
    """How it ended; the first outcome stays."""
    tokens, cost, estimated, turns = figures
    refused = event_log.dump(list(denied)) if denied else ""
    values = (now, outcome, *tokens, cost, int(estimated), turns, refused, id)
    for agent, *of in session.rows(CLOSE, values):
        data = {"id": id, "agent": agent, "outcome": outcome, "tokens": sum(tokens)}
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
    """What the sessions that began since then cost, of a batch, a task, or all."""
    tests, values = _where(batch=batch, task=task, since=since or None)
    tokens, cost, estimated, unpriced = session.rows(SPENT.format(tests), values)[0]
    return Spent(int(tokens), int(cost), bool(estimated), int(unpriced))


def settled(session: Session, ids: Sequence[str]) -> frozenset[str]:
    """Those of these that have ended, and with them all tasks that their worker claimed."""
    ended = [
        row
        for some in slices(ids)
        for row in session.rows(ENDED.format(marks(len(some))), pad(some))
    ]
    needed = {
        (batch, row[0])
        for batch in sorted({batch for _, batch, _ in ended})
        for row in session.rows(STILL_NEEDED, (batch,))
    }
    return frozenset(id for id, batch, worker in ended if (batch, worker) not in needed)


def with_figures(session: Session, batch: str, reports: list[TaskReport]) -> list[TaskReport]:
    """The reports of a batch's tasks, with what agents cost on each and how the last came out."""
    if not reports or not session.rows(ANY_OF_BATCH, (batch,)):
        return reports
    found = {each.id: each for each in reports}
    for some in slices([each.id for each in reports]):
        for task, tokens, cost, estimated, outcome in session.rows(
            FIGURES.format(marks(len(some))), pad(some)
        ):
            was = found[task]
            known = was.cost_micros is not None or cost is not None
            found[task] = was._replace(
                tokens=was.tokens + tokens,
                cost_micros=(was.cost_micros or 0) + (cost or 0) if known else None,
                estimated=was.estimated or bool(estimated and cost),
                outcome=outcome or "",
            )
    return list(found.values())


def _where(**wanted: Any) -> tuple[str, list[Any]]:
    given = {name: value for name, value in wanted.items() if value is not None}
    return " AND ".join(OF[name] for name in given) or "1 = 1", [*given.values()]


def _session(row: tuple[Any, ...]) -> AgentSession:
    denied = tuple(json.loads(row[18])) if row[18] else ()
    figures = (Tokens(*row[12:15]), row[15], bool(row[16]), row[17])
    return AgentSession._make((*row[:12], *figures, denied))


def _log(session: Session, kind: str, of: Any, data: dict[str, Any], now: int) -> None:
    batch, worker, task, attempt = of
    line = event_log.Line(kind, task, batch, attempt or None, None, worker, event_log.dump(data))
    event_log.write(session, now, [line])
