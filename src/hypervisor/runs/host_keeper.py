"""Registers this host in the store, and renews its lease while the supervisor runs.

A store on this host alone needs no lease: then nothing is written while the supervisor is idle.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import hypervisor
from hypervisor.core.records import NamedTuple
from hypervisor.queue.host import LocalLease, Registration, host_id
from hypervisor.queue.sql import hosts
from hypervisor.resources.load import total_memory
from hypervisor.runs import sql

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.runs.lease_renewer import LeaseRenewer

LAUNCHER = "HV_LAUNCHER"  # the environment variable that says what started the supervisor

logger = logging.getLogger("hypervisor.runs")


class HostFacts(NamedTuple):
    """What a host has: for placing work, and for comparing hosts."""

    labels: tuple[str, ...]
    resources: dict[str, Any]
    versions: dict[str, Any]


def host_facts(hv: Context) -> HostFacts:
    """What every host has; agents/host_facts.py adds the agents."""
    resources = {"memory": total_memory(), "cpus": len(os.sched_getaffinity(0))}
    versions = {"hypervisor": hypervisor.__version__}
    return HostFacts(hv.settings.capabilities, resources, versions)


def this_host(hv: Context) -> str:
    """The id of this host in the store."""
    return host_id(hv.probe.host(), hv.probe.boot(), os.getuid())


class HostKeeper:
    """A part of the supervisor. Threads renew the lease, so that neither a long tick nor a call
    that hangs can lose it; workers read it in a file, and renew it if the supervisor does not."""

    def __init__(self, hv: Context, facts: Callable[[Context], HostFacts] = host_facts) -> None:
        self.hv, self._facts = hv, facts
        self.id = this_host(hv)
        self._lease_ms = hv.settings.host_lease if hv.store.is_shared else 0
        self._epoch: int | None = None  # None: not registered
        self._renewer: LeaseRenewer | None = None

    def tick(self, now: int) -> None:
        if self._epoch is not None and self._renewer and self._renewer.is_lost():
            logger.warning("this host was declared gone; it registers again")
            self._epoch = None
        if self._epoch is None:
            self._register(now)

    def last_look(self) -> None:
        """The host leaves, unless workers are still running: they keep its lease."""
        if self._epoch is None or self.hv.store.read(sql.at_work, self.hv.probe.boot()):
            return
        if self._renewer:
            self._renewer.stop()
            self._renewer = None
        self.hv.store.write_unsynced(hosts.leave, self.id, self._epoch)
        self._epoch = None

    def _register(self, now: int) -> None:
        pid = os.getpid()
        host = Registration(
            self.id,
            self.hv.probe.host(),
            self.hv.probe.boot(),
            pid,
            self.hv.probe.process_start(pid) or 0,
            self._lease_ms,
            os.environ.get(LAUNCHER, "local"),
            *self._facts(self.hv),
        )
        if not self._lease_ms:
            self._epoch = self.hv.store.write_unsynced(hosts.register, host, now).epoch
            return
        from hypervisor.runs.lease_renewer import LeaseRenewer, boot_clock

        sent_at = boot_clock()
        self._epoch = self.hv.store.write_unsynced(hosts.register, host).epoch
        lease = LocalLease(self.id, self._epoch, self._lease_ms, sent_at)
        if self._renewer is None:
            self._renewer = LeaseRenewer(self.hv)
            self._renewer.start()
        self._renewer.hold(lease)
