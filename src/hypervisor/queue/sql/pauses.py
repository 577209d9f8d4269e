"""Pauses of a batch, a type or everything. Every change is an event."""

from __future__ import annotations

from hypervisor.queue.lifecycle import UNFINISHED
from hypervisor.queue.pause import BATCH, INTERRUPTED, Pause
from hypervisor.queue.sql import event_log
from hypervisor.queue.sql.lanes import lane_book
from hypervisor.store.database import Session, marks, pad

PAUSE = """
INSERT INTO pauses (scope, name, reason, actor, at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (scope, name) DO UPDATE
    SET reason = excluded.reason, actor = excluded.actor, at = excluded.at
    WHERE pauses.reason = ? AND excluded.reason <> pauses.reason
RETURNING scope
"""
RESUME = "DELETE FROM pauses WHERE scope = ? AND name = ? RETURNING scope"
PAUSES = "SELECT scope, name, reason, actor, at FROM pauses ORDER BY scope, name"
HAS_UNFINISHED = f"""
SELECT 1 FROM tasks WHERE batch = ? AND batch <> '' AND state IN ({marks(len(UNFINISHED))}) LIMIT 1
"""


def pause(session: Session, new: Pause, now: int) -> bool:
    """Pause a batch, a type or everything. False if it was already paused.

    The pause of an interrupted run becomes a requested one: running the batch again does not
    lift it."""
    if not session.rows(PAUSE, (new.scope, new.name, new.reason, new.actor, now, INTERRUPTED)):
        return False
    lane_book(session).follow_pauses(session)
    _log_pause(session, "pause", new, now)
    return True


def resume(session: Session, old: Pause, now: int) -> bool:
    if not session.rows(RESUME, (old.scope, old.name)):
        return False
    lane_book(session).follow_pauses(session)
    _log_pause(session, "resume", old, now)
    return True


def pauses(session: Session) -> list[Pause]:
    return [Pause(*row) for row in session.rows(PAUSES)]


def pauses_in_effect(session: Session) -> list[Pause]:
    """All pauses but those of batches that have nothing left to do."""
    return [
        pause
        for pause in pauses(session)
        if pause.scope != BATCH or session.rows(HAS_UNFINISHED, (pause.name, *pad(UNFINISHED)))
    ]


def _log_pause(session: Session, kind: str, changed: Pause, now: int) -> None:
    batch = changed.name if changed.scope == BATCH else ""
    data = {"scope": changed.scope, "name": changed.name, "reason": changed.reason}
    event_log.note(session, kind, data, changed.actor, now, batch=batch)
