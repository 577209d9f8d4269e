"""The claims of agents that claim tasks themselves: made by one process, kept alive by another.

The worker of such an agent checks every second which claims it holds. A separate list makes that
cheap however many claims there are, and costs other workers nothing: an index of live attempts by
worker would be written at every claim.
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
    """Add new claims of a worker to the list, and remove those that have ended."""
    session.run(FORGET_ENDED, (worker,))
    session.run_many(ADD, [(worker, token.task, token.attempt) for token in tokens])


def live(session: Session, worker: str) -> list[Lease]:
    """The live claims of a worker, in the order of their tasks' ids."""
    rows = session.rows(LIVE, (worker,))
    tasks = queries.tasks(session, [row[0] for row in rows]) if rows else []
    return [
        Lease(str(Token(*row[:3])), row[3], task) for row, task in zip(rows, tasks, strict=True)
    ]
