"""The launcher for Ray: a small detached actor on each node keeps the supervisor there running.

Only this module and the watcher load Ray. They connect as a driver, from a node of the cluster.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from hypervisor.cluster import ray_commands
from hypervisor.cluster.keeper import SupervisorKeeper
from hypervisor.cluster.launcher import Launched
from hypervisor.cluster.security import refuse_open_cluster
from hypervisor.core.errors import ClusterError
from hypervisor.core.places import digest
from hypervisor.core.records import NamedTuple

KEEPER = "keeper-"  # a keeper is named after its node
ANSWER = 10.0  # seconds for an actor to answer
NODE_ID = "ray.io/node-id"
HEAD = "node:__internal_head__"


class Node(NamedTuple):
    id: str
    name: str
    address: str
    is_head: bool


def namespace_of(identity: str) -> str:
    """Actors of different stores have the same names in different namespaces."""
    return f"hypervisor-{digest(identity)}"


def connect(address: str, namespace: str) -> str:
    """Connect to the cluster at an address, or to the one that this host is part of; returns its
    address. ClusterError: there is none, or it lets everybody in."""
    ray_commands.require_ray()
    place = address or ray_commands.current_address()
    refuse_open_cluster(place, ray_commands.asks_for_token(place))
    os.environ.update(ray_commands.settings(place))  # Ray reads them when it is loaded
    import ray

    try:
        ray.init(
            address=place, namespace=namespace, log_to_driver=False, logging_level=logging.ERROR
        )
    except Exception as error:
        raise ClusterError(f"cannot connect to Ray at {place}: {_first_line(error)}") from None
    return place


def disconnect() -> None:
    import ray

    ray.shutdown()


class RayLauncher:
    """Needs a connection, see `connect`."""

    def __init__(self, store: str, namespace: str, workers_only: bool = False) -> None:
        """`store` is its URL without a password. `workers_only`: not on the head."""
        self._store, self._namespace, self._workers_only = store, namespace, workers_only

    def nodes(self) -> tuple[Node, ...]:
        import ray

        alive = [node for node in ray.nodes() if node["Alive"]]
        known = (
            Node(
                n["NodeID"],
                n["NodeManagerHostname"],
                n["NodeManagerAddress"],
                HEAD in n["Resources"],
            )
            for n in alive
        )
        return tuple(node for node in known if not (node.is_head and self._workers_only))

    def hosts(self) -> tuple[str, ...]:
        return tuple(node.id for node in self.nodes())

    def kept(self) -> frozenset[str]:
        """The nodes that have a keeper, or had one when they were lost."""
        from ray.util import list_named_actors

        actors = list_named_actors(all_namespaces=True)
        return frozenset(
            actor["name"].removeprefix(KEEPER)
            for actor in actors
            if actor["namespace"] == self._namespace and actor["name"].startswith(KEEPER)
        )

    def start(self, host: str) -> None:
        import ray

        address = next((node.address for node in self.nodes() if node.id == host), "")
        ray.remote(SupervisorKeeper).options(
            name=f"{KEEPER}{host}",
            namespace=self._namespace,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            label_selector={NODE_ID: host},
        ).remote(self._store, host, address)

    def look(self, host: str) -> Launched | None:
        import ray

        keeper = self._keeper(host)
        if keeper is None:
            return None
        try:
            return Launched(*ray.get(keeper.look.remote(), timeout=ANSWER))
        except Exception as error:
            return Launched(host, "", None, _first_line(error))

    def release(self, host: str) -> None:
        import ray

        keeper = self._keeper(host)
        if keeper is not None:
            ray.kill(keeper, no_restart=True)

    def _keeper(self, host: str) -> Any:
        import ray

        try:
            return ray.get_actor(f"{KEEPER}{host}", namespace=self._namespace)
        except ValueError:
            return None


def request(resources: list[dict[str, float]], labels: list[dict[str, str]]) -> None:
    """Ask the autoscaler for hosts, until the next request. Nothing happens without one."""
    from ray.autoscaler.sdk import request_resources

    if any(labels):
        request_resources(bundles=resources, bundle_label_selectors=labels)
    else:
        request_resources(bundles=resources)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
