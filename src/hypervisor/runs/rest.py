"""How the supervisor sleeps between ticks while it has nothing to do: until the store changes.

A change is only a hint, and it looks around every second in any case: other hosts write to a
PostgreSQL store, and tasks, cooldowns and leases have their times.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.file_watch import FileWatch

if TYPE_CHECKING:
    from hypervisor.runs.processes.signals import Signals

ALERT = 0.5  # seconds after a change in which it ticks as often as before: more may follow
ALERT_TICK, REST_TICK = 0.05, 1.0  # seconds


class Rest:
    def __init__(self, path: str) -> None:
        """`path` changes when work may have arrived."""
        self._path = path
        self._watch: FileWatch | None = None
        self._changed_at: float | None = None  # None: not at rest

    def end(self) -> None:
        """There is something to do."""
        self._changed_at = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def wait(self, signals: Signals) -> None:
        """Until the next tick."""
        now = time.monotonic()
        if self._changed_at is None:
            self._changed_at = now
            with suppress(OSError):  # without it, the next tick is in a second
                self._watch = FileWatch(self._path)
        if now < self._changed_at + ALERT:
            signals.wait(ALERT_TICK)
        elif signals.wait(REST_TICK, self._watch):
            self._changed_at = time.monotonic()
