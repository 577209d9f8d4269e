"""Spending through the gateway: who may spend, and what was spent. All in the rows of sessions."""

from __future__ import annotations

from hypervisor.core.records import NamedTuple
from hypervisor.queue.agent_session import Tokens
from hypervisor.queue.lease import Worker
from hypervisor.store.database import Session

SPENDER = """
SELECT s.spend_code, s.agent, s.account, s.batch, s.task, s.attempt, s.ended_at,
    w.id, w.name, w.host, w.boot, w.pid, w.pid_start, b.spec
FROM sessions s JOIN workers w ON w.id = s.worker JOIN batches b ON b.id = s.batch
WHERE s.id = ? AND s.spend_code <> ''
"""
# Also people who are attached to a session: those are not workers of a run.
SPENDERS = """
SELECT w.id, w.name, w.host, w.boot, w.pid, w.pid_start FROM tasks t
JOIN sessions s ON s.task = t.id AND s.task <> '' AND s.attempt = t.attempt
JOIN workers w ON w.id = s.worker
WHERE t.state = 'in_progress' AND s.ended_at IS NULL AND s.spend_code <> '' AND w.boot = ?
"""
CLAIM = "SELECT outcome, ended_at FROM attempts WHERE task = ? AND number = ?"
ADD = """
UPDATE sessions SET input_tokens = input_tokens + ?, output_tokens = output_tokens + ?,
    cached_tokens = cached_tokens + ?, calls = calls + 1
WHERE id = ?
"""
ADD_COST = """
UPDATE sessions SET cost_micros = coalesce(cost_micros, 0) + ?, estimated = 1 WHERE id = ?
"""
REFUSE = "UPDATE sessions SET refused = ?, refusal = ? WHERE id = ?"
REFUSAL = "SELECT refused, refusal FROM sessions WHERE id = ? AND refused <> ''"


class Spender(NamedTuple):
    """An open session that spends through the gateway, with its claim as the store has it."""

    spend_code: str
    agent: str
    account: str
    batch: str
    task: str
    attempt: int
    ended_at: int | None
    worker: Worker
    spec: str  # of the batch, as JSON
    outcome: str | None = None  # of the attempt, None while it runs
    claim_ended_at: int | None = None


def spender(session: Session, id: str) -> Spender | None:
    """None if there is no such session, or it does not use the gateway."""
    for row in session.rows(SPENDER, (id,)):
        found = Spender._make((*row[:7], Worker(*row[7:13]), row[13] or "", None, None))
        for outcome, ended_at in session.rows(CLAIM, (found.task, found.attempt)):
            return found._replace(outcome=outcome, claim_ended_at=ended_at)
        return found
    return None


def spenders(session: Session, boot: str) -> list[Worker]:
    """Who holds the claim of a session that spends through the gateway of this host."""
    return [Worker(*row) for row in session.rows(SPENDERS, (boot,))]


def add_call(session: Session, id: str, tokens: Tokens, cost_micros: int | None) -> None:
    """Count an answered call, even if its session has ended by now."""
    session.run(ADD, (*tokens, id))
    if cost_micros is not None:
        session.run(ADD_COST, (cost_micros, id))


def refuse(session: Session, id: str, kind: str, reason: str) -> None:
    session.run(REFUSE, (kind, reason, id))


def refusal(session: Session, id: str) -> tuple[str, str] | None:
    """The kind and the reason of a session's last refused call."""
    return next(((str(kind), str(why)) for kind, why in session.rows(REFUSAL, (id,))), None)
