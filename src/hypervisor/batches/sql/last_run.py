"""What a batch's row says about the last time the batch was run."""

from __future__ import annotations

from hypervisor.store.database import Session

SET_RUN_AT = "UPDATE batches SET run_at = ? WHERE id = ?"
SET_SKIPPED = "UPDATE batches SET skipped = ? WHERE id = ?"
SKIPPED = "SELECT skipped FROM batches WHERE id = ?"
LATEST = """
SELECT id, run_at IS NOT NULL AND run_at >= created_at FROM batches
WHERE archived_at IS NULL
ORDER BY CASE WHEN run_at >= created_at THEN run_at ELSE created_at END DESC,
    run_at IS NOT NULL DESC, id DESC LIMIT 1
"""


def set_run_at(session: Session, batch: str, now: int) -> None:
    session.run(SET_RUN_AT, (now, batch))


def set_skipped(session: Session, batch: str, tasks: int) -> None:
    """The number of tasks that were done already when the batch was submitted."""
    session.run(SET_SKIPPED, (tasks, batch))


def skipped(session: Session, batch: str) -> int:
    return next((row[0] for row in session.rows(SKIPPED, (batch,))), 0)


def latest(session: Session) -> tuple[str, bool] | None:
    """The unarchived batch that was created or run last, and whether it was run."""
    return next(((row[0], bool(row[1])) for row in session.rows(LATEST)), None)
