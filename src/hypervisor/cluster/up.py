"""Start supervisors on all hosts of a cluster, and keep them running."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hypervisor.cluster import ray_commands, ray_launcher
from hypervisor.cluster.launcher import Launched, Launcher
from hypervisor.cluster.security import check_store
from hypervisor.cluster.watcher import WatchSettings, start_watcher
from hypervisor.core.errors import ClusterError, InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context
from hypervisor.store.settings import identity

WAIT = 60.0  # seconds for the supervisors to start
STEP = 0.2


class ClusterUp(NamedTuple):
    launcher: str  # "ray" or "ssh"
    address: str  # of Ray's head, "" for ssh
    head_started: bool
    hosts: tuple[Launched, ...]


def cluster_up(
    hv: Context,
    address: str = "",
    hosts: Sequence[str] = (),
    *,
    listen: str = "",
    idle: int | None = None,
    workers_only: bool = False,
) -> ClusterUp:
    """Start a supervisor on each host of a Ray cluster, or on hosts reached by ssh.

    `address`: that of Ray's head; without it, the cluster that this host is part of, or a new one
    whose head listens on `listen`. `idle`: let hosts go after this many milliseconds without work.
    `workers_only`: no supervisor on the head."""
    store = check_store(hv.launcher.where, is_kept_by_ray=not hosts)
    if hosts:
        if address or listen or idle is not None or workers_only:
            raise InvalidInput("hosts (over ssh) cannot be combined with options for Ray")
        from hypervisor.cluster.ssh_launcher import SshLauncher

        ssh = SshLauncher(store, hosts)
        return ClusterUp("ssh", "", False, start_all(ssh, hosts))
    return _ray_up(hv, store, address, listen, (workers_only, idle))


def _ray_up(
    hv: Context, store: str, address: str, listen: str, rules: tuple[bool, int | None]
) -> ClusterUp:
    ray_commands.require_ray()
    head = "" if address else _new_head(listen)
    namespace = ray_launcher.namespace_of(identity(hv.store))
    place = ray_launcher.connect(address or head, namespace)
    try:
        launcher = ray_launcher.RayLauncher(store, namespace, rules[0])
        _refuse_local_store(store, [node.address for node in launcher.nodes()])
        start_watcher(WatchSettings(store, namespace, *rules), hv.open_store)
        nodes = () if rules[1] is not None else launcher.hosts()
        return ClusterUp("ray", place, bool(head), start_all(launcher, nodes))
    finally:
        ray_launcher.disconnect()


def _new_head(listen: str) -> str:
    """The address of the head that is started; "" if this host is part of a cluster."""
    if not listen:
        try:
            ray_commands.current_address()
            return ""
        except ClusterError:
            pass
    ray_commands.make_token()
    host, _, port = listen.rpartition(":") if ":" in listen else (listen, "", "")
    return ray_commands.start_head(host or "127.0.0.1", int(port or ray_commands.PORT))


def _refuse_local_store(store: str, addresses: Sequence[str]) -> None:
    """Other hosts would look for it on their own loopback interface."""
    from hypervisor.store.postgres_url import transport

    if transport(store).is_local and len(set(addresses)) > 1:
        raise InvalidInput(
            "the cluster has several hosts, but the store's URL names a server on this host only; "
            "use its address on the network"
        )


def start_all(launcher: Launcher, hosts: Sequence[str]) -> tuple[Launched, ...]:
    """Start the supervisors of these hosts and wait until each runs or has failed."""
    for host in hosts:
        launcher.start(host)
    deadline = time.monotonic() + WAIT
    while True:
        looks = [launcher.look(host) for host in hosts]
        found = [look for look in looks if look is not None]
        if all(look.supervisor or look.trouble for look in found) and len(found) == len(hosts):
            return tuple(found)
        if time.monotonic() > deadline:
            return tuple(found)
        time.sleep(STEP)
