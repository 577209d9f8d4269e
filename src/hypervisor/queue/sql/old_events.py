"""Deleting the oldest events, a few at a time. The log always keeps its end: SQLite and PostgreSQL
number the next event after the last one, and a number must not be used twice."""

from __future__ import annotations

from hypervisor.queue.sql import counts
from hypervisor.store.database import Session

FIRST = "SELECT coalesce(min({}), 0) FROM events"
DELETE = "DELETE FROM events WHERE {0} >= ? AND {0} <= ?"


def first_event(session: Session) -> int:
    """The number of the oldest event that is kept; 0 if there is none."""
    return int(session.rows(FIRST.format(session.event_number))[0][0])


def delete_events(session: Session, last: int, limit: int) -> int:
    """Delete up to `limit` of the oldest events, up to the number `last`; returns how many."""
    first, last = first_event(session), min(last, counts.last_event(session) - 1)
    if not 0 < first <= last:
        return 0
    last = min(last, first + limit - 1)
    if counts.counted(session) < last:
        counts.fold_all(session)
    session.run(DELETE.format(session.event_number), (first, last))
    return last - first + 1
