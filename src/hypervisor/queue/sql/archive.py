"""Archived batches, which lists leave out, and batches whose deletion has begun."""

from __future__ import annotations

from hypervisor.core.errors import WrongState
from hypervisor.queue.sql import event_log
from hypervisor.store.database import Session

ARCHIVE = "UPDATE batches SET archived_at = ? WHERE id = ? AND archived_at IS NULL RETURNING id"
UNARCHIVE = """
UPDATE batches SET archived_at = NULL WHERE id = ? AND archived_at IS NOT NULL RETURNING id
"""
HIDDEN = "SELECT name, archived_at, deleting FROM batches WHERE id = ?"
UNFINISHED = """
SELECT state, count(*) FROM tasks
WHERE batch = ? AND batch <> '' AND state NOT IN ('done', 'failed', 'cancelled')
GROUP BY state ORDER BY state
"""


def archive(session: Session, batch: str, actor: str, now: int) -> bool:
    """False if it is archived already."""
    if not session.rows(ARCHIVE, (now, batch)):
        return False
    event_log.note(session, "archive", None, actor, now, batch=batch)
    return True


def unarchive(session: Session, batch: str, actor: str, now: int) -> bool:
    """False if it is not archived."""
    if not session.rows(UNARCHIVE, (batch,)):
        return False
    event_log.note(session, "unarchive", None, actor, now, batch=batch)
    return True


def unfinished(session: Session, batch: str) -> dict[str, int]:
    """How many tasks have not ended, by state."""
    return dict(session.rows(UNFINISHED, (batch,)))


def show(session: Session, batch: str, actor: str, now: int) -> None:
    """A batch in which something is about to run is not archived. WrongState: being deleted."""
    for name, archived_at, deleting in session.rows(HIDDEN, (batch,)):
        refuse_if_deleting(name, deleting)
        if archived_at is not None:
            unarchive(session, batch, actor, now)


def refuse_if_deleting(name: str, deleting: bool) -> None:
    if deleting:
        raise WrongState(
            f"batch {name} is being deleted. Nothing was changed; "
            f"`hv batches delete {name}` completes a deletion that was interrupted."
        )
