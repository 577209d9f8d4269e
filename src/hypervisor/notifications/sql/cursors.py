"""Cursors: positions of readers in the event log. They are not about the work, so moving one
writes no event."""

from __future__ import annotations

from hypervisor.queue.event import Cursor
from hypervisor.store.database import Session

CURSOR = "SELECT number FROM cursors WHERE name = ?"
CURSORS = "SELECT name, number, moved_at FROM cursors ORDER BY name"
# Never backwards: a reader that was thought dead may acknowledge old events.
MOVE = """
INSERT INTO cursors (name, number, moved_at) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET number = excluded.number, moved_at = excluded.moved_at
WHERE cursors.number < excluded.number
"""


def cursor(session: Session, name: str) -> int:
    """The position, 0 for a new reader."""
    return next((int(row[0]) for row in session.rows(CURSOR, (name,))), 0)


def cursors(session: Session) -> list[Cursor]:
    return [Cursor(*row) for row in session.rows(CURSORS)]


def move(session: Session, name: str, number: int, now: int) -> None:
    session.run(MOVE, (name, number, now))
