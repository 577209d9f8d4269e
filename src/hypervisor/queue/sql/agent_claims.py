"""The claims of agents that claim by themselves: made by one process, answered for by another.

The worker that keeps such an agent looks every second what it holds. A list of its own makes that
cheap however many claims there are, and costs nobody else anything: an index of the live attempts
by worker would be written at every turn of every worker.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.queue.lease import Lease, Token
from hypervisor.queue.sql import queries
from hypervisor.store.database import Session

ADD = "INSERT INTO agent_claims (worker, task, attempt) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
FORGET_ENDED = """
DELETE FROM agent_claims WHERE worker = ? AND NOT EXISTS (
    SELECT 1 FROM tasks t WHERE t.id = agent_claims.task AND t.attempt = agent_claims.attempt
        AND t.deadline IS NOT NULL)
"""
FORGET = "DELETE FROM agent_claims WHERE worker = ?"
LIVE = """
SELECT t.id, t.attempt, a.nonce, t.deadline FROM agent_claims c
JOIN tasks t ON t.id = c.task AND t.attempt = c.attempt
JOIN attempts a ON a.task = c.task AND a.number = c.attempt
WHERE c.worker = ? AND t.deadline IS NOT NULL ORDER BY t.id
"""


def add(session: Session, worker: str, tokens: Sequence[Token]) -> None:
    """List new claims of a worker, and those that have ended no longer."""
    session.run(FORGET_ENDED, (worker,))
    session.run_many(ADD, [(worker, token.task, token.attempt) for token in tokens])


def live(session: Session, worker: str) -> list[Lease]:
    """The live claims of a worker, in the order of their tasks' ids."""
    rows = session.rows(LIVE, (worker,))
    found = queries.tasks(session, [row[0] for row in rows]) if rows else []
    return [
        Lease(str(Token(*row[:3])), row[3], task) for row, task in zip(rows, found, strict=True)
    ]
