"""Retention of the event log: events above an age or a number are deleted, the oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.queue.sql import old_events, queries

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

KEPT = 1_000  # always: the latest events show the pace and what has just finished
SLICE = 1_000  # events in one transaction


def delete_old_events(hv: Context, before: int, most: int, dry_run: bool = False) -> int:
    """Delete events from before a time, and the oldest if there are more than `most`; returns how
    many. Others can write in between."""
    end = queries.end_of_log(hv.store)  # on PostgreSQL, it numbers the latest events
    last = min(max(queries.number_before(hv.store, before), end - most), end - KEPT)
    if dry_run:
        first = hv.store.read(old_events.first_event)
        return max(last - first + 1, 0) if first else 0
    deleted = 0
    while count := hv.store.write_unsynced(old_events.delete_events, last, SLICE):
        deleted += count
    return deleted
