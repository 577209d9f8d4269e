"""Let this host join a Ray cluster; its supervisor follows."""

from __future__ import annotations

import os
import platform
import time

import hypervisor
from hypervisor.cluster import ray_commands
from hypervisor.cluster.hosts import present
from hypervisor.cluster.security import check_store, refuse_open_cluster
from hypervisor.core.errors import ClusterError
from hypervisor.core.records import NamedTuple
from hypervisor.monitoring.host_versions import differences
from hypervisor.queue.context import Context

WAIT = 60.0  # seconds for the watcher to start a supervisor here
STEP = 0.5


class Joined(NamedTuple):
    address: str
    supervisor: int | None  # None: nobody has started one yet


def cluster_join(
    hv: Context, address: str, *, node_ip: str = "", token_file: str = "", wait: float = WAIT
) -> Joined:
    """Let this host join the Ray cluster at an address, and wait for its supervisor.

    Nothing is started if its versions differ from those of the other hosts. `token_file` is copied
    to where Ray looks for the token."""
    check_store(hv.launcher.where)
    _refuse_other_versions(hv)
    if token_file:
        _use_token(token_file)
    refuse_open_cluster(address, ray_commands.asks_for_token(address))
    ray_commands.start_node(address, node_ip)
    deadline = time.monotonic() + wait
    while not (pid := hv.launcher.supervisor()) and time.monotonic() < deadline:
        time.sleep(STEP)
    return Joined(address, pid or None)


def own_versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "hypervisor": hypervisor.__version__,
        "ray": ray_commands.require_ray(),
    }


def _refuse_other_versions(hv: Context) -> None:
    here = "this host"
    others = {host.id: host.versions for host in present(hv)}
    own = own_versions()
    for versions in others.values():
        both = {"others": versions, here: own}  # the others come first: they are the usual ones
        if different := differences(both).get(here):
            raise ClusterError(
                "the versions on this host differ from those of the cluster: "
                f"{'; '.join(different)}. Nothing was started; install the same versions here"
            )


def _use_token(path: str) -> None:
    try:
        with open(os.path.expanduser(path), encoding="ascii") as file:
            ray_commands.save_token(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"cannot read the token from {path}: {error}") from None
