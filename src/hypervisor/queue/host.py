"""Hosts: the machines that work on a store, and their leases.

On PostgreSQL, a host holds the claims of its workers by one lease, under an epoch. Declaring
it gone raises the epoch, so a renewal that comes too late is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from hypervisor.core.places import digest
from hypervisor.core.records import NamedTuple

DEFAULT_HOST_LEASE = 60_000
MIN_HOST_LEASE, MAX_HOST_LEASE = 2_000, 3_600_000

ON = "on:"  # labels of hosts are capabilities, `on:LABEL`: a claim checks them like any other

HostState = Literal["up", "draining", "gone"]
# Of a lease, as its host sees it. "late": claim nothing more; "ending": freeze what runs;
# "over": stop it, others may start it again.
LeasePhase = Literal["held", "late", "ending", "over"]


class Registration(NamedTuple):
    """What a supervisor states about its host when it starts. `lease_ms` is 0 without a lease."""

    id: str
    name: str
    boot: str
    pid: int
    pid_start: int
    lease_ms: int = 0
    launcher: str = "local"  # what started it, for example "ray:NODE"
    labels: tuple[str, ...] = ()
    resources: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    versions: dict[str, Any] = {}  # noqa: RUF012


class HostStatus(NamedTuple):
    """What changes while a host works: published with each renewal."""

    zone: str
    workers: int
    status: dict[str, Any]


class HostLease(NamedTuple):
    """`until` is by the clock of the database, 0 without a lease."""

    epoch: int
    until: int


class LocalLease(NamedTuple):
    """The lease of a host as its own processes know it, in milliseconds of the boot clock.

    `sent_at` is taken before the renewal was sent, so the lease ends here before it ends for
    others, whatever the network and the clocks do."""

    host: str
    epoch: int
    lease_ms: int
    sent_at: int

    def phase(self, now: int) -> LeasePhase:
        age = now - self.sent_at
        if age >= self.lease_ms:
            return "over"
        if age >= self.lease_ms - margin_of(self.lease_ms):
            return "ending"
        return "late" if age * 3 >= self.lease_ms * 2 else "held"

    def is_neglected(self, now: int) -> bool:
        """Whether the supervisor should have renewed it by now."""
        return (now - self.sent_at) * 3 >= self.lease_ms

    def ended(self) -> LocalLease:
        """The same lease after others were seen to have ended it."""
        return self._replace(sent_at=self.sent_at - self.lease_ms)


class Host(NamedTuple):
    id: str
    name: str
    boot: str
    state: HostState
    epoch: int
    lease_ms: int
    lease_until: int
    registered_at: int
    seen_at: int
    pid: int
    pid_start: int
    launcher: str
    labels: tuple[str, ...]
    resources: dict[str, Any]
    versions: dict[str, Any]
    zone: str
    workers: int
    status: dict[str, Any]


def host_id(name: str, boot: str, uid: int) -> str:
    """The id of a host: each boot, pid namespace and user has its own, as it has a supervisor."""
    return f"{name}-{digest(boot, str(uid))}"


def labels_of(name: str, labels: Sequence[str]) -> tuple[str, ...]:
    """The capabilities that the name and the labels of a host give it."""
    return tuple(dict.fromkeys(ON + label for label in (name, *labels)))


def margin_of(lease_ms: int) -> int:
    """How long before its deadline a host stops its work, and how long after it others wait."""
    return lease_ms // 10
