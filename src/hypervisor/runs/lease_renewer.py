"""Renews the lease of this host while its supervisor runs, in two threads.

One renews, on a connection of its own. The other, which never waits for anything, cuts connections
that hang: that of the renewal after some seconds, that of the supervisor once the lease is over.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError
from hypervisor.queue.host import HostStatus, LocalLease
from hypervisor.queue.sql import hosts, stops
from hypervisor.runs.processes.lease_file import LeaseFile, boot_clock

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.store.database import Database

__all__ = ["LeaseRenewer", "boot_clock", "renew"]

RENEWALS_PER_LEASE = 6
LOOK, RETRY = 1.0, 0.5  # seconds
WATCH = 0.5  # seconds
MAX_WAIT = 5.0  # seconds for the answer to a renewal
MAX_CUT_WAIT = 1.0  # seconds that the supervisor may wait once the lease is over

logger = logging.getLogger("hypervisor.runs")


class LeaseRenewer:
    def __init__(self, hv: Context) -> None:
        self._hv = hv
        self._file = LeaseFile(hv.launcher.places.runtime)
        self._store = hv.store.twin()
        self._lease: LocalLease | None = None
        self._changed, self._stopped = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._renew, name="lease", daemon=True),
            threading.Thread(target=self._watch, name="lease watch", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def hold(self, lease: LocalLease) -> None:
        """A new lease, from now on the one to renew."""
        self._file.publish(lease, is_new=True)
        self._lease = lease
        self._changed.set()

    def is_lost(self) -> bool:
        """Whether others have declared this host gone."""
        return self._lease is None

    def stop(self) -> None:
        """The host leaves: no process of it needs the lease any more."""
        self._stopped.set()
        self._changed.set()
        for thread in self._threads:
            thread.join(MAX_WAIT)
        self._store.close()
        self._file.remove()

    def _renew(self) -> None:
        while not self._stopped.is_set():
            lease = self._lease
            try:
                if lease is not None:
                    self._look(lease)
                self._changed.wait(LOOK)
            except (StoreError, OSError) as error:
                logger.warning("the lease of this host was not renewed: %s", error)
                self._changed.wait(RETRY)
            self._changed.clear()

    def _look(self, lease: LocalLease) -> None:
        """Once a second: renew the lease if it is time, and look for stops for all workers."""
        last = self._file.read()
        is_current = last is not None and last.epoch == lease.epoch
        age = boot_clock() - last.sent_at if last and is_current else lease.lease_ms
        if age * RENEWALS_PER_LEASE >= lease.lease_ms - 1000:
            held = renew(self._store, self._file, lease, self._status())
            if not held and self._lease is lease:
                self._lease = None
                return
        self._file.publish_stops(self._store.read(stops.mark))

    def _status(self) -> HostStatus:
        published = self._hv.launcher.read_status() or {}
        return HostStatus(published.get("zone", ""), published.get("workers", 0), published)

    def _watch(self) -> None:
        while not self._stopped.wait(WATCH):
            if self._store.waits_for() > MAX_WAIT:
                self._store.cut()
            lease = self._file.read()
            is_over = lease is not None and lease.phase(boot_clock()) == "over"
            if is_over and self._hv.store.waits_for() > MAX_CUT_WAIT:
                self._hv.store.cut()


def renew(
    store: Database, file: LeaseFile, lease: LocalLease, status: HostStatus | None = None
) -> bool:
    """Renew a lease and publish it. False: others have declared the host gone."""
    sent_at = boot_clock()
    if store.write_unsynced(hosts.renew, lease.host, lease.epoch, status) is None:
        file.publish(lease.ended())
        return False
    file.publish(lease._replace(sent_at=sent_at))
    return True
