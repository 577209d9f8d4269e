"""Late results: of attempts whose claim had ended, for example on a host that was cut off.

They change nothing, but are kept with the task: in an event, and as a receipt.
"""

from __future__ import annotations

from hypervisor.queue.lease import AttemptResult
from hypervisor.queue.sql import event_log, receipts
from hypervisor.store.database import Session

TASK = "SELECT batch FROM tasks WHERE id = ?"


def keep(session: Session, late: AttemptResult, why: str, actor: str, now: int) -> None:
    """Keep a result that was refused; not if its task has been deleted."""
    token = late.token
    for (batch,) in session.rows(TASK, (token.task,)):
        message = f"late result of attempt {token.attempt} ({late.event}) kept, not used: {why}"
        data = {
            "attempt": token.attempt,
            "outcome": late.event,
            "result": late.result,
            "reason": late.reason,
            "message": message,
        }
        event_log.note(session, "salvage", data, actor, now, task=token.task, batch=batch)
        receipts.append(session, token.task, actor, [message], now)
