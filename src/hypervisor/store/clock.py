"""The time of an SQLite store: the wall clock, read once per boot and carried on by the boot clock.

The store keeps points in time, but most of them end a duration: a retry, a lease, a cooldown. When
the wall clock is set meanwhile, the store's time goes on as before in every process, and follows
once nothing depends on it. See docs/decisions/0037.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Protocol

from hypervisor.core.errors import StoreError
from hypervisor.queue.retry import LONGEST_DELAY
from hypervisor.store.database import Database, Session

TRUSTED = 5_000  # milliseconds until the offset is read again
STEP = 1_000  # a larger difference means that somebody set the wall clock
HASTE = 100  # the two clocks are read within this time, or once more
MOST_READS = 100
STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
KEPT = "SELECT value FROM settings WHERE name = ?"
KEEP = """
INSERT INTO settings (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
TIMED = """
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
        """Since 1970. Anybody may set it."""
        ...

    def steady(self) -> int:
        """Since boot, time asleep included. Nobody can set it."""
        ...

    def boot(self) -> tuple[str, str]:
        """Names the boot, and the namespace in which its clock is seen."""
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
        self._boot, space = clocks.boot()
        self._name = f"clock {space}"
        self._read: tuple[int, int] | None = None  # the offset, and when it was read

    def now(self) -> int:
        steady = self._clocks.steady()
        if self._read is None or steady - self._read[1] > TRUSTED:
            self._read = (self._offset(), steady)
        return steady + self._read[0]

    def _offset(self) -> int:
        """What all processes of this boot add to the boot clock; the first of them sets it."""
        wall = self._wall_offset()
        if not self._boot:
            return wall
        with suppress(StoreError):  # away, damaged or full: that is for others to tell
            kept = self._db.read(self._kept, wall)
            return self._db.write_unsynced(self._set, wall) if kept is None else kept
        return wall if self._read is None else self._read[0]

    def _wall_offset(self) -> int:
        """How far the wall clock is ahead of the boot clock, both read in one go."""
        for _ in range(MOST_READS):
            before = self._clocks.steady()
            wall = self._clocks.wall()
            if self._clocks.steady() - before <= HASTE:
                break
        return wall - before

    def _kept(self, session: Session, wall: int) -> int | None:
        """The offset in use. None: there is none, or the wall clock was set and may be followed."""
        for row in session.rows(KEPT, (self._name,)):
            boot, _, text = row[0].partition(" ")
            if boot != self._boot:
                return None
            kept = int(text)
            now = self._clocks.steady() + kept
            due = (now + LONGEST_DELAY, now, now, now)
            return kept if abs(wall - kept) < STEP or session.rows(TIMED, due)[0][0] else None
        return None

    def _set(self, session: Session, wall: int) -> int:
        kept = self._kept(session, wall)
        if kept is None:  # else another process was quicker
            session.run(KEEP, (self._name, f"{self._boot} {wall}"))
        return wall if kept is None else kept
