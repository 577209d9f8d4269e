"""The hosts that work on a store, and the load of this one."""

from __future__ import annotations

from typing import Any

from hypervisor.core.records import NamedTuple
from hypervisor.monitoring.host_versions import differences
from hypervisor.queue.context import Context
from hypervisor.queue.host import Host
from hypervisor.queue.sql import hosts as hosts_sql
from hypervisor.runs import sql
from hypervisor.runs.spec import WorkingHost


class KnownHost(NamedTuple):
    """A host in the store."""

    host: Host
    seen_ms: int  # since it last renewed its lease
    differs: tuple[str, ...]  # versions that most other hosts do not have


class Hosts(NamedTuple):
    """`status` is what the supervisor of this host last published, None if there is none. `known`
    is empty for a store that is not shared: there is only this host."""

    here: str
    supervisor: int | None
    status: dict[str, Any] | None
    working: tuple[WorkingHost, ...]
    known: tuple[KnownHost, ...]


def hosts(hv: Context) -> Hosts:
    """List the hosts of the store, with the load of this one."""
    return Hosts(
        hv.probe.host(),
        hv.launcher.supervisor(),
        hv.launcher.read_status(),
        tuple(hv.store.read(sql.hosts)),
        known_hosts(hv) if hv.store.is_shared else (),
    )


def known_hosts(hv: Context, all: bool = False) -> tuple[KnownHost, ...]:
    """The hosts in the store; with `all`, those that are gone as well."""
    now = hv.now()
    rows = [host for host in hv.store.read(hosts_sql.hosts) if all or host.state != "gone"]
    differing = differences({host.id: host.versions for host in rows if host.state != "gone"})
    return tuple(
        KnownHost(host, max(0, now - host.seen_at), differing.get(host.id, ())) for host in rows
    )
