"""For the supervisor: gets the repositories of batches from other hosts."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from hypervisor.core.errors import HypervisorError
from hypervisor.git.elsewhere import fetch_base, is_elsewhere

if TYPE_CHECKING:
    from hypervisor.runs.spec import RunSpec

Key = tuple[str, str, str]  # host, hub and base of a repository

RETRY = 30.0  # seconds until a repository that could not be fetched is tried again

logger = logging.getLogger("hypervisor.git")


class RepositoryFetcher:
    """Each in a thread, before this host claims any of the tasks."""

    def __init__(self, data: str, host: str) -> None:
        self._data, self._host = data, host
        self._ready: set[Key] = set()
        self._running: dict[Key, threading.Thread] = {}
        self._failed: dict[Key, tuple[float, str]] = {}

    def problem(self, spec: RunSpec) -> str | None:
        """Why this host cannot make clones yet; "" if it can, without having the repository. None:
        it needs the folder of the batch."""
        if spec.workspace != "clone" or spec.function or not is_elsewhere(spec, self._host):
            return None
        key = spec.git.host, spec.git.hub, spec.git.base
        failed_at, reason = self._failed.get(key, (0.0, ""))
        thread = self._running.get(key)
        if key in self._ready:
            return ""
        if thread is not None and thread.is_alive():
            return reason or f"is getting the repository from {spec.git.exchange}"
        if not reason or time.monotonic() - failed_at >= RETRY:
            self._running[key] = threading.Thread(target=self._fetch, args=(key, spec), daemon=True)
            self._running[key].start()
        return reason or f"is getting the repository from {spec.git.exchange}"

    def _fetch(self, key: Key, spec: RunSpec) -> None:
        try:
            fetch_base(self._data, spec)
            self._ready.add(key)
        except (HypervisorError, OSError) as error:
            logger.warning("%s", error)
            self._failed[key] = time.monotonic(), f"has no {spec.git.root}: {error}"
