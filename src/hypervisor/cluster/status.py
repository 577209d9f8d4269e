"""The hosts of a cluster, how they differ, and what their launcher could not start."""

from __future__ import annotations

from hypervisor.cluster import ray_commands, ray_launcher
from hypervisor.cluster.launcher import Launched
from hypervisor.core.errors import ClusterError
from hypervisor.core.records import NamedTuple
from hypervisor.monitoring.hosts import KnownHost, known_hosts
from hypervisor.queue.context import Context
from hypervisor.store.settings import identity


class ClusterStatus(NamedTuple):
    hosts: tuple[KnownHost, ...]
    address: str  # of Ray's head, "" if this host is not part of a Ray cluster
    launched: tuple[Launched, ...]  # what Ray's keepers say
    trouble: str  # why Ray could not be asked


def cluster_status(hv: Context, address: str = "", *, all: bool = False) -> ClusterStatus:
    """List the hosts that work on the store, and which of them differ in their versions.

    `all`: those that are gone as well."""
    return ClusterStatus(known_hosts(hv, all), *_ray(hv, address))


def _ray(hv: Context, address: str) -> tuple[str, tuple[Launched, ...], str]:
    if not ray_commands.ray_version():
        return "", (), ""
    namespace = ray_launcher.namespace_of(identity(hv.store))
    try:
        place = address or ray_commands.current_address()
    except ClusterError:
        return "", (), ""  # hosts may be reached by ssh
    try:
        place = ray_launcher.connect(place, namespace)
    except ClusterError as error:
        return place, (), str(error)
    try:
        launcher = ray_launcher.RayLauncher("", namespace)
        looks = [launcher.look(node) for node in sorted(launcher.kept())]
        return place, tuple(look for look in looks if look is not None), ""
    finally:
        ray_launcher.disconnect()
