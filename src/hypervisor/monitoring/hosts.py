"""The hosts that work on a store, and the load of this one."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypervisor.queue.context import Context
from hypervisor.runs import sql
from hypervisor.runs.spec import WorkingHost


class Hosts(NamedTuple):
    """`status` is what the supervisor of this host last published, None if there is none."""

    here: str
    supervisor: int | None
    status: dict[str, Any] | None
    working: tuple[WorkingHost, ...]


def hosts(hv: Context) -> Hosts:
    """List the hosts that have workers, with the load of this one."""
    return Hosts(
        hv.probe.host(),
        hv.launcher.supervisor(),
        hv.launcher.read_status(),
        tuple(hv.store.read(sql.hosts)),
    )
