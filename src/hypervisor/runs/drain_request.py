"""Drains this supervisor when its host is drained in the store, as a signal would."""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING

from hypervisor.queue.sql import hosts
from hypervisor.runs.host_keeper import this_host

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

LOOK_MS = 5_000

logger = logging.getLogger("hypervisor.runs")


class DrainRequest:
    """A part of the supervisor. Only a store that other hosts share can ask for it."""

    def __init__(self, hv: Context) -> None:
        self.hv = hv
        self._looked_at = 0
        self._passed_on = False

    def tick(self, now: int) -> None:
        if self._passed_on or 0 <= now - self._looked_at < LOOK_MS:
            return
        self._looked_at = now
        host = self.hv.store.read(hosts.host, this_host(self.hv))
        if host is not None and host.state == "draining":
            logger.info("this host is being drained; finishing running attempts")
            self._passed_on = True
            os.kill(os.getpid(), signal.SIGTERM)

    def last_look(self) -> None:
        """Nothing to end."""
