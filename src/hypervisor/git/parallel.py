"""How many verifications run at a time on this host: as many as the governor admits."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hypervisor.resources.zones import SAFE, allowed

if TYPE_CHECKING:
    from hypervisor.queue.context import Context


class Parallel:
    """Shared by the lanes. Each may always run one, so that none waits for another; more only
    where running attempts and the other lanes leave room."""

    def __init__(self, hv: Context) -> None:
        self._hv, self._lock = hv, threading.Lock()
        self._running: Counter[str] = Counter()

    def width(self, lane: str) -> int:
        """How many verifications a lane may run by now."""
        status = self._hv.launcher.read_status() or {}
        limit = self._hv.settings.workers or os.cpu_count() or 1
        admitted = allowed(status.get("zone", SAFE), limit)
        with self._lock:
            others = self._running.total() - self._running[lane]
        return max(1, admitted - int(status.get("workers", 0)) - others)

    @contextmanager
    def running(self, lane: str) -> Iterator[None]:
        with self._lock:
            self._running[lane] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[lane] -= 1
