"""Watches a Ray cluster for the store: new nodes get a keeper, idle hosts are let go.

A detached actor: it works when the client has gone. Ray starts it again, on another node if its
own is lost. Without it, hosts work on; only new nodes are not noticed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from hypervisor.cluster import ray_launcher
from hypervisor.cluster.demand import ready_needs
from hypervisor.cluster.hosts import drain_nodes, keep_nodes, nodes_at_work
from hypervisor.cluster.ray_launcher import RayLauncher
from hypervisor.cluster.scaling import Bundle, IdleClock, Need, View, bundles, steps
from hypervisor.core.records import NamedTuple

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

NAME = "watcher"
PERIOD = 2.0  # seconds

logger = logging.getLogger("hypervisor.cluster")


class WatchSettings(NamedTuple):
    store: str  # its URL without a password
    namespace: str
    workers_only: bool = False
    idle_limit: int | None = None  # milliseconds; None: hosts are never let go


class Nodes(Protocol):
    """What it needs of a launcher."""

    def hosts(self) -> tuple[str, ...]: ...
    def kept(self) -> frozenset[str]: ...
    def start(self, host: str) -> None: ...
    def release(self, host: str) -> None: ...


class Scaler:
    """One look at the nodes and the queue after the other. Without a limit for idle hosts, the
    store is not needed."""

    def __init__(
        self,
        nodes: Nodes,
        hv: Context | None,
        idle_limit: int | None,
        request: Callable[[list[Bundle], list[dict[str, str]]], None],
    ) -> None:
        self._nodes, self._hv, self._idle_limit = nodes, hv, idle_limit
        self._request = request
        self._requested: list[tuple[Bundle, dict[str, str]]] | None = None
        self._idle = IdleClock()

    def tick(self, now: int) -> None:
        view = self._view()
        todo = steps(view, self._idle.idle_for(view, now), self._idle_limit)
        for node in todo.forget:
            self._nodes.release(node)
        if self._hv is not None and (todo.start or todo.let_go):
            keep_nodes(self._hv, todo.start)
            drain_nodes(self._hv, todo.let_go)
        for node in todo.start:
            self._nodes.start(node)
        for node in todo.let_go:
            self._nodes.release(node)
        if self._hv is not None:
            self._ask(view.needs)

    def _view(self) -> View:
        nodes, kept = frozenset(self._nodes.hosts()), self._nodes.kept()
        if self._hv is None:
            return View(nodes, kept, kept)
        working = nodes_at_work(self._hv)
        return View(nodes, kept, frozenset(working), ready_needs(self._hv))

    def _ask(self, needs: tuple[Need, ...]) -> None:
        """For what is ready and what is running: the request is about the whole cluster."""
        if needs and self._hv is not None:
            running = sum(nodes_at_work(self._hv).values())
            needs = (Need(running, max(need.cpus for need in needs)), *needs)
        resources, labels = bundles(needs)
        wanted = list(zip(resources, labels, strict=True))
        if wanted != self._requested:
            self._request(resources, labels)
            self._requested = wanted


class Watcher:
    """The actor."""

    def __init__(self, settings: WatchSettings, open_store: Callable[..., Context]) -> None:
        self._settings = WatchSettings(*settings)
        self._open_store = open_store
        self.trouble = ""
        threading.Thread(target=self._watch, daemon=True).start()

    def look(self) -> str:
        """What went wrong last, "" if all is well."""
        return self.trouble

    def _watch(self) -> None:
        scaler: Scaler | None = None
        while True:
            try:
                scaler = scaler or self._scaler()
                scaler.tick(int(time.monotonic() * 1000))
                self.trouble = ""
            except Exception as error:  # the next look may succeed
                self.trouble = f"{type(error).__name__}: {error}"
                logger.warning("%s", self.trouble)
            time.sleep(PERIOD)

    def _scaler(self) -> Scaler:
        settings = self._settings
        launcher = RayLauncher(settings.store, settings.namespace, settings.workers_only)
        limited = settings.idle_limit is not None
        hv = self._open_store(settings.store, create=False) if limited else None
        return Scaler(launcher, hv, settings.idle_limit, ray_launcher.request)


def start_watcher(settings: WatchSettings, open_store: Callable[..., Context]) -> None:
    """Replace the watcher: it may have other settings."""
    import ray

    stop_watcher(settings.namespace)
    deadline = time.monotonic() + ray_launcher.ANSWER
    while True:
        with suppress(ValueError):  # the name is not free yet
            ray.remote(Watcher).options(
                name=NAME,
                namespace=settings.namespace,
                lifetime="detached",
                num_cpus=0,
                max_restarts=-1,
            ).remote(settings, open_store)
            return
        if time.monotonic() > deadline:
            raise TimeoutError("the watcher of the cluster did not end")
        time.sleep(0.1)


def stop_watcher(namespace: str) -> bool:
    """False if there was none."""
    import ray

    try:
        ray.kill(ray.get_actor(NAME, namespace=namespace), no_restart=True)
    except ValueError:
        return False
    ray_launcher.request([], [])
    return True
