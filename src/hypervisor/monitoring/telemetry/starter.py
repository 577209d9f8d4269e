"""The supervisor's part in telemetry: starts the sender when something has happened.

Sending is the work of another process, so that a slow or broken receiver delays nothing here.
While the receiver does not answer, the sender is started less and less often.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError
from hypervisor.runs.telemetry_settings import telemetry_of

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

EVERY, LONGEST = 2_000, 300_000  # milliseconds between looks, and between starts that fail


class TelemetryStarter:
    def __init__(self, hv: Context, environment: Mapping[str, str]) -> None:
        self._hv, self._wanted = hv, telemetry_of(hv.settings.telemetry, environment)
        self._next, self._pause = 0, EVERY
        self._seen = -1  # how far the sender was at its last start

    def tick(self, now: int) -> None:
        if self._wanted is None or 0 < self._next - now <= LONGEST:
            return
        self._next = now + EVERY
        with suppress(StoreError):  # the supervisor has its own patience with the store
            self._start(now)

    def last_look(self) -> None:
        """The sender continues after the supervisor."""
        self._next = 0
        self.tick(self._hv.now())

    def _start(self, now: int) -> None:
        from hypervisor.monitoring.telemetry.progress import sent
        from hypervisor.queue.sql import queries

        after = sent(self._hv).after
        if not queries.events(self._hv.store, after, 1):
            self._pause = EVERY
            return
        self._pause = min(self._pause * 2, LONGEST) if after == self._seen else EVERY
        self._seen, self._next = after, now + self._pause
        self._hv.launcher.start_telemetry()
