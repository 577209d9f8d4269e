"""The supervisor's part in notifications: adds notices for new events and, when one is due, starts
the deliverer (`deliverer.py`)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError
from hypervisor.notifications.sql import notices

if TYPE_CHECKING:
    from hypervisor.notifications.matching import Passed
    from hypervisor.queue.context import Context

PAUSE_MS = 300
PAGES = 10  # at a time, because the supervisor has more to do
START_MS = 3_000  # between two starts of a deliverer


class Notifier:
    def __init__(self, hv: Context) -> None:
        self._hv = hv
        self._passed: Passed = {}
        self._looked_at: int | None = None
        self._started_at: int | None = None

    def tick(self, now: int) -> None:
        """Add notices for the events since the last tick, and start their delivery."""
        if self._looked_at is not None and 0 <= now - self._looked_at < PAUSE_MS:
            return
        self._looked_at = now
        if not self._hv.store.read(notices.rules):
            self._passed = {}
            return
        from hypervisor.notifications.matching import collect  # most stores have no rules

        self._passed = collect(self._hv, self._passed, PAGES)
        if self._passed and self._is_due(now):
            self._start(now)

    def last_look(self) -> None:
        """Handle the latest events before the supervisor exits."""
        self._looked_at = self._started_at = None
        with suppress(StoreError):
            self.tick(self._hv.now())

    def _is_due(self, now: int) -> bool:
        from hypervisor.notifications.notice import is_due
        from hypervisor.notifications.notify import reachable

        waiting = self._hv.store.read(notices.waiting)
        due = {name for name, (_, due_at) in waiting.items() if is_due(due_at, now)}
        return bool(due) and any(rule.name in due for rule in reachable(self._hv))

    def _start(self, now: int) -> None:
        if self._started_at is None or not 0 <= now - self._started_at < START_MS:
            self._started_at = now
            self._hv.launcher.start_notifier()
