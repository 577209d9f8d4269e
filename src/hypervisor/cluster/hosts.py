"""The hosts that launchers have started, as the ledger knows them."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import NotFound
from hypervisor.queue.sql import hosts as sql

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.host import Host, HostState

GONE = "gone"
RAY, SSH = "ray", "ssh"


def launched(host: Host) -> tuple[str, str]:
    """What has started a host, and its name there: ("ray", NODE), ("ssh", DESTINATION)."""
    kind, _, name = host.launcher.partition(":")
    return kind, name


def present(hv: Context) -> list[Host]:
    """The hosts that are not gone."""
    return [host for host in hv.store.read(sql.hosts) if host.state != GONE]


def nodes_at_work(hv: Context) -> dict[str, int]:
    """How many workers each node of Ray has, without those that have none."""
    hosts = [host for host in present(hv) if host.workers and launched(host)[0] == RAY]
    return {launched(host)[1]: host.workers for host in hosts}


def drain_nodes(hv: Context, nodes: Collection[str]) -> None:
    _set_state(hv, nodes, "draining")


def keep_nodes(hv: Context, nodes: Collection[str]) -> None:
    """Nodes that were drained may work again."""
    _set_state(hv, nodes, "up")


def set_state(hv: Context, host: Host, state: HostState) -> None:
    if host.state != state:
        with suppress(NotFound):  # it has left meanwhile
            hv.store.write(sql.set_state, host.id, state, hv.actor, hv.now())


def _set_state(hv: Context, nodes: Collection[str], state: HostState) -> None:
    for host in present(hv) if nodes else ():
        kind, node = launched(host)
        if kind == RAY and node in nodes:
            set_state(hv, host, state)
