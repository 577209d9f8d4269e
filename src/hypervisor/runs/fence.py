"""A worker's fence: it stops the attempt before the lease of its host ends.

A thread of its own, without SQL, so that a call that hangs cannot hold it up. It only sends signals
to the attempt and cuts the connection; the main thread collects processes and settles. All that it
knows is in the host's lease file and on the boot clock.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError
from hypervisor.queue.host import LocalLease
from hypervisor.queue.stop import Stop
from hypervisor.runs.lease_renewer import renew
from hypervisor.runs.processes import freeze
from hypervisor.runs.processes.lease_file import LeaseFile, boot_clock
from hypervisor.runs.unfenced import Unfenced
from hypervisor.runs.workspaces import StoppedEarly

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Lease
    from hypervisor.runs.spec import OnCut
    from hypervisor.store.database import Database

TICK = 0.2  # seconds
RENEW_TIMEOUT = 5.0  # seconds until a renewal that got no answer is given up
CUT_OFF = "the host was cut off from the store"

logger = logging.getLogger("hypervisor.runs")


class Fence(Unfenced):
    """`store` is the worker's, not one that retries."""

    def __init__(
        self, store: Database, file: LeaseFile, lease: LocalLease, on_cut: OnCut, name: str
    ) -> None:
        self._store, self._file, self._on_cut, self._name = store, file, on_cut, name
        self.leased_by = lease.host
        self._epoch = lease.epoch  # of all claims that the worker holds
        self._mutex = threading.Lock()
        self._running: tuple[str, int] | None = None  # task and attempt
        self._cut: Stop | None = None
        self._frozen: freeze.Frozen = set()
        self._renewal: Renewal | None = None

    # For the main thread, see `Unfenced`

    def start(self) -> None:
        threading.Thread(target=self._run, name="fence", daemon=True).start()

    def may_claim(self) -> bool:
        return self._holds() and self._phase() == "held"

    def renewed_since(self) -> bool:
        lease = self._file.read()
        if lease is None or lease.epoch == self._epoch:
            return False
        self._epoch = lease.epoch
        return True

    def enter(self, lease: Lease) -> None:
        with self._mutex:
            stop = self._stop(lease.task.id, lease.task.attempts)
            if not self._holds() or self._phase() in ("ending", "over"):
                raise StoppedEarly(stop)
            self._running = stop.task, stop.attempt
            self._cut = None

    def enter_session(self) -> bool:
        with self._mutex:
            if not self.may_claim():
                return False
            self._running, self._cut = ("", 0), None
        return True

    def cut(self) -> Stop | None:
        return self._cut

    def leave(self) -> Stop | None:
        with self._mutex:
            self._running = None
            self._frozen = set()
            return self._cut

    def stops(self) -> str:
        lease = self._file.read()
        is_watched = lease is not None and not lease.is_neglected(boot_clock())
        return self._file.stops() if is_watched else ""

    # The thread

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            try:
                self.tick()
            except OSError as error:
                logger.warning("fence: %s", error)
            pause.wait(TICK)

    def tick(self) -> None:
        lease = self._file.read()
        if lease and lease.is_neglected(boot_clock()) and lease.phase(boot_clock()) != "over":
            self._renew(lease)
        phase = self._phase()
        if phase == "over" and self._store.waits_for() > 1.0:
            self._store.cut()
        with self._mutex:
            if self._running is not None and self._on_cut != "finish":
                self._act("over" if not self._holds() else phase)

    def _act(self, phase: str) -> None:
        assert self._running is not None
        if phase == "over" or (phase != "held" and self._on_cut == "stop"):
            self._cut = self._cut or self._stop(*self._running)
            freeze.kill()
        elif phase == "ending" and not self._frozen:
            logger.warning("the lease of this host is ending; pausing the attempt")
            self._frozen = freeze.freeze()
        elif phase != "ending" and self._frozen:
            frozen, self._frozen = self._frozen, set()
            freeze.thaw(frozen)

    def _renew(self, lease: LocalLease) -> None:
        """The supervisor has not: it may have died. One worker does it for all."""
        if self._renewal is None or not self._renewal.is_alive():
            self._renewal = Renewal(self._store.twin(), self._file, lease)
            self._renewal.start()
        elif self._renewal.store.waits_for() > RENEW_TIMEOUT:
            self._renewal.store.cut()

    def _holds(self) -> bool:
        """Whether the claims of this worker are kept by the current lease."""
        lease = self._file.read()
        return lease is not None and lease.epoch == self._epoch

    def _phase(self) -> str:
        lease = self._file.read()
        return "over" if lease is None else lease.phase(boot_clock())

    def _stop(self, task: str, attempt: int) -> Stop:
        return Stop(task, attempt, "release", CUT_OFF, self._name)


class Renewal(threading.Thread):
    """Renews the lease once, on a connection of its own."""

    def __init__(self, store: Database, file: LeaseFile, lease: LocalLease) -> None:
        super().__init__(name="renewal", daemon=True)
        self.store, self._file, self._lease = store, file, lease

    def run(self) -> None:
        with suppress(StoreError, OSError), self._file.alone() as alone:
            if alone:
                renew(self.store, self._file, self._lease)
                self.store.close()


def fence_for(hv: Context, on_cut: OnCut, name: str) -> Unfenced:
    """The fence of a worker, if its host has a lease."""
    file = LeaseFile(hv.launcher.places.runtime)
    lease = file.read()
    return Fence(hv.store, file, lease, on_cut, name) if lease else Unfenced()
