"""One warning per batch and budget, whichever worker notices first."""

from __future__ import annotations

from hypervisor.queue.sql import event_log
from hypervisor.store.database import Session

WARNED = "SELECT budget_warned FROM batches WHERE id = ?"
SET_WARNED = """
UPDATE batches SET budget_warned = ? WHERE id = ? AND budget_warned <> ? RETURNING id
"""


def warned_budget(session: Session, batch: str) -> str:
    return next((str(row[0]) for row in session.rows(WARNED, (batch,))), "")


def warn(session: Session, batch: str, budget: str, message: str, actor: str, *, now: int) -> None:
    if session.rows(SET_WARNED, (budget, batch, budget)):
        event_log.note(session, "budget", {"message": message}, actor, now, batch=batch)
