"""Which nodes get a keeper, which are let go, and what the autoscaler is asked for.

Pure: what is known goes in, what to do comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hypervisor.core.records import NamedTuple

MAX_BUNDLES = 500  # of one request; more tasks than that wait for the next one
AGENT_CPUS = 0.25  # an agent mostly waits for its model
COMMAND_CPUS = 1.0


class Need(NamedTuple):
    """Tasks that are ready or running, and what each of them needs."""

    tasks: int
    cpus: float
    memory: int = 0  # bytes; 0: unknown
    labels: tuple[str, ...] = ()


class View(NamedTuple):
    """What is known about a cluster at one moment."""

    nodes: frozenset[str]  # that are up and may get a supervisor
    kept: frozenset[str]  # that have a keeper
    working: frozenset[str]  # whose host has workers
    needs: tuple[Need, ...] = ()


class Steps(NamedTuple):
    start: tuple[str, ...]
    let_go: tuple[str, ...]  # idle hosts: drained, then the autoscaler may remove them
    forget: tuple[str, ...]  # keepers of nodes that are gone


class IdleClock:
    """Since when each node has had nothing to do."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def idle_for(self, view: View, now: int) -> Mapping[str, int]:
        idle = set() if view.needs else view.kept - view.working
        self._since = {node: self._since.get(node, now) for node in idle}
        return {node: now - since for node, since in self._since.items()}


def steps(view: View, idle_for: Mapping[str, int], idle_limit: int | None) -> Steps:
    """`idle_limit` is in milliseconds; None: hosts are never let go."""
    missing = view.nodes - view.kept
    if idle_limit is not None and not view.needs:
        missing = frozenset()  # a host is started for work only
    spare = {
        node
        for node, idle in idle_for.items()
        if idle_limit is not None and idle >= idle_limit and node in view.nodes
    }
    return Steps(
        tuple(sorted(missing)), tuple(sorted(spare)), tuple(sorted(view.kept - view.nodes))
    )


Bundle = dict[str, float]


def bundles(needs: Iterable[Need]) -> tuple[list[Bundle], list[dict[str, str]]]:
    """What to ask the autoscaler for: resources per task, and the labels that its host must have.

    The request stands until the next one, so no needs are an empty request."""
    resources: list[Bundle] = []
    selectors: list[dict[str, str]] = []
    for need in needs:
        for _ in range(min(need.tasks, MAX_BUNDLES - len(resources))):
            resources.append({"CPU": need.cpus, **({"memory": need.memory} if need.memory else {})})
            selectors.append(dict.fromkeys(need.labels, "true"))
    return resources, selectors
