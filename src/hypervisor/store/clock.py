"""The time of an SQLite store: the wall clock, read once per boot and carried on by the boot clock.

Most times in a store are the end of a duration: a retry, a lease, a cooldown. When the wall clock
is set, the store's time continues unchanged in every process, and follows once no duration depends
on it. See docs/decisions/0037.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Protocol

from hypervisor.core.errors import StoreError
from hypervisor.store.database import Database, Session

REREAD_AFTER = 5_000  # milliseconds until the offset is read again
MAX_DELAY = 3_600_000  # of a retry: a start time further away is a date, not a duration
STEP = 1_000  # a larger difference means that the wall clock was set
MAX_READ_TIME = 100  # both clocks are read within this time, or read again
MAX_READS = 100
STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
GET_OFFSET = "SELECT boot, ahead FROM clocks WHERE namespace = ?"
SET_OFFSET = """
INSERT INTO clocks (namespace, boot, ahead) VALUES (?, ?, ?)
ON CONFLICT (namespace) DO UPDATE SET boot = excluded.boot, ahead = excluded.ahead
"""
HAS_DURATIONS = """
SELECT EXISTS (
        SELECT 1 FROM tasks WHERE state = 'waiting' AND start_at IS NOT NULL AND start_at < ?)
    OR EXISTS (SELECT 1 FROM tasks t JOIN attempts a ON a.task = t.id AND a.number = t.attempt
        JOIN workers w ON w.id = a.worker WHERE t.state = 'in_progress' AND w.pid <= 0)
    OR EXISTS (SELECT 1 FROM brakes WHERE until > ?)
    OR EXISTS (SELECT 1 FROM rules WHERE due_at > ? OR held_until > ?)
"""


class Clocks(Protocol):
    """A host's clocks, in milliseconds."""

    def wall(self) -> int:
        """Since 1970. It can be set."""
        ...

    def steady(self) -> int:
        """Since boot, including suspended time. It cannot be set."""
        ...

    def boot(self) -> tuple[str, str]:
        """The ids of this boot and of the namespace of its clock."""
        ...


class HostClocks:
    def wall(self) -> int:
        return time.time_ns() // 1_000_000

    def steady(self) -> int:
        return time.clock_gettime_ns(STEADY) // 1_000_000

    def boot(self) -> tuple[str, str]:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip(), os.readlink("/proc/self/ns/time")
        except OSError:
            return "", ""


class StoreClock:
    def __init__(self, database: Database, clocks: Clocks) -> None:
        self._db, self._clocks = database, clocks
        self._boot, self._namespace = clocks.boot()
        self._read: tuple[int, int] | None = None  # the offset, and when it was read

    def now(self) -> int:
        steady = self._clocks.steady()
        if self._read is None or steady - self._read[1] > REREAD_AFTER:
            self._read = (self._offset(), steady)
        return steady + self._read[0]

    def _offset(self) -> int:
        """The offset that all processes of this boot add to the boot clock; the first sets it."""
        wall = self._wall_offset()
        if not self._boot:
            return wall
        with suppress(StoreError):  # the operation that needs the time reports it
            stored = self._db.read(self._stored, wall)
            return self._db.write_unsynced(self._set, wall) if stored is None else stored
        return wall if self._read is None else self._read[0]

    def _wall_offset(self) -> int:
        """How far the wall clock is ahead of the boot clock, both read at the same time."""
        for _ in range(MAX_READS):
            before = self._clocks.steady()
            wall = self._clocks.wall()
            if self._clocks.steady() - before <= MAX_READ_TIME:
                break
        return wall - before

    def _stored(self, session: Session, wall: int) -> int | None:
        """The offset in use. None: not set, or the wall clock was set and may be followed."""
        for boot, offset in session.rows(GET_OFFSET, (self._namespace,)):
            if boot != self._boot:
                return None
            now = self._clocks.steady() + offset
            due = (now + MAX_DELAY, now, now, now)
            in_use = abs(wall - offset) < STEP or session.rows(HAS_DURATIONS, due)[0][0]
            return int(offset) if in_use else None
        return None

    def _set(self, session: Session, wall: int) -> int:
        stored = self._stored(session, wall)
        if stored is not None:  # another process was faster
            return stored
        session.run(SET_OFFSET, (self._namespace, self._boot, wall))
        return wall
