"""Take a cluster down: nothing is started again, and its hosts drain."""

from __future__ import annotations

import time

from hypervisor.cluster import ray_commands, ray_launcher
from hypervisor.cluster.hosts import RAY, SSH, launched, present, set_state
from hypervisor.cluster.watcher import stop_watcher
from hypervisor.core.errors import ClusterError
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context
from hypervisor.queue.host import Host
from hypervisor.runs.control import kill
from hypervisor.runs.sql import running
from hypervisor.store.settings import identity

STEP = 0.5
NO_LIMIT = 1_000_000


class ClusterDown(NamedTuple):
    released: int  # nodes of Ray that are no longer watched
    draining: tuple[str, ...]  # names of hosts
    stopped: int  # attempts that are being stopped
    trouble: str = ""  # why Ray could not be asked


def cluster_down(
    hv: Context, address: str = "", *, now: bool = False, wait: float = 0.0
) -> ClusterDown:
    """Drain the hosts of a cluster and stop starting their supervisors.

    Running attempts finish; with `now`, they are stopped and go back into the queue. Works without
    Ray, too: hosts drain by what the store says. `wait`: for this many seconds, until they left."""
    released, trouble = _release(hv, address)
    hosts = [host for host in present(hv) if launched(host)[0] in (RAY, SSH)]
    for host in hosts:
        set_state(hv, host, "draining")
    stopped = _stop(hv, hosts) if now else 0
    deadline = time.monotonic() + wait
    while time.monotonic() < deadline and {h.id for h in present(hv)} & {h.id for h in hosts}:
        time.sleep(STEP)
    return ClusterDown(released, tuple(host.name for host in hosts), stopped, trouble)


def _release(hv: Context, address: str) -> tuple[int, str]:
    if not ray_commands.ray_version():
        return 0, ""
    namespace = ray_launcher.namespace_of(identity(hv.store))
    try:
        ray_launcher.connect(address, namespace)
    except ClusterError as error:
        return 0, str(error)
    try:
        stop_watcher(namespace)
        launcher = ray_launcher.RayLauncher("", namespace)
        nodes = launcher.kept()
        for node in nodes:
            launcher.release(node)
        return len(nodes), ""
    finally:
        ray_launcher.disconnect()


def _stop(hv: Context, hosts: list[Host]) -> int:
    names = {host.boot for host in hosts}
    attempts = [r for r in hv.store.read(running, None, NO_LIMIT) if r.worker.boot in names]
    for attempt in attempts:
        kill(hv, attempt.task, "the cluster is taken down", retry=True)
    return len(attempts)
