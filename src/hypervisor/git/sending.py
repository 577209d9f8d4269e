"""What this host still has to send to hosts that have the repositories of its batches."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import HypervisorError, NotFound, WorkspaceError
from hypervisor.core.private_folders import make_private_folders
from hypervisor.git import sql
from hypervisor.git.base import repository_on
from hypervisor.git.elsewhere import fetch_base, import_work, is_elsewhere, mirror_of, send_work
from hypervisor.git.hub import Hub, hub_path, open_hub
from hypervisor.queue.sql import queries
from hypervisor.runs.spec import spec_from

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

FOLDER = "unsent"

logger = logging.getLogger("hypervisor.git")


class Unsent:
    """Attempts of this host that have something to send: files `<task>.<attempt>`, so that a
    worker never waits for the network, and nothing is forgotten when it is killed."""

    def __init__(self, data: str) -> None:
        self._folder = os.path.join(data, "git", FOLDER)

    def add(self, task: str, attempt: int) -> None:
        make_private_folders(self._folder)
        with open(self._path(task, attempt), "w", encoding="utf-8") as file:
            file.write("\n")  # so that its time changes

    def remove(self, task: str, attempt: int, mark: int | None = None) -> None:
        """With `mark`: unless it was added again since."""
        with suppress(FileNotFoundError):
            if mark in (None, self.mark(task, attempt)):
                os.unlink(self._path(task, attempt))

    def mark(self, task: str, attempt: int) -> int:
        """Changes when the attempt is added again."""
        return os.stat(self._path(task, attempt)).st_mtime_ns

    def _path(self, task: str, attempt: int) -> str:
        return os.path.join(self._folder, f"{task}.{attempt}")

    def attempts(self) -> list[tuple[str, int]]:
        with suppress(FileNotFoundError):
            pairs = (name.rpartition(".") for name in sorted(os.listdir(self._folder)))
            return [(task, int(number)) for task, _, number in pairs if number.isdecimal()]
        return []


def send_unsent(hv: Context) -> None:
    """Send what there is; what cannot be sent now stays for the next time."""
    unsent = Unsent(hv.places.data)
    for task, attempt in unsent.attempts():
        try:
            mark = unsent.mark(task, attempt)
            _send(hv, task, attempt)
            unsent.remove(task, attempt, mark)
        except NotFound:  # its batch was deleted
            unsent.remove(task, attempt)
        except (WorkspaceError, OSError) as error:
            logger.warning("%s waits: %s", task, error)


def has_stranded(hv: Context, now: int) -> bool:
    """Whether a host that is gone has worked on a repository of this one."""
    host = hv.probe.host()
    batches = hv.store.read(sql.stranded, host, now)
    specs = (spec_from(hv.store.read(queries.batch, batch).spec) for batch in batches)
    return any(spec.git.exchange and spec.git.host == host for spec in specs)


def get_from_elsewhere(hv: Context, task: str) -> None:
    """Copy what other hosts did for a task into the hub here, as far as they have sent it."""
    found = hv.store.read(queries.task, task)
    row = hv.store.read(sql.workspace, task)
    spec = spec_from(hv.store.read(queries.batch, found.batch).spec) if found.batch else None
    if spec is None or not spec.git.exchange or (row is not None and row.host == hv.probe.host()):
        return
    try:
        if is_elsewhere(spec, hv.probe.host()):
            fetch_base(hv.places.data, spec)
        hub = open_hub(hv.places.data, repository_on(hv, spec))
        for attempt in range(1, found.attempts + 1):
            import_work(hub, spec.git, task, attempt)
    except (HypervisorError, OSError) as error:
        logger.warning("%s", error)


def _send(hv: Context, task: str, attempt: int) -> None:
    batch = hv.store.read(queries.task, task).batch
    spec = spec_from(hv.store.read(queries.batch, batch).spec)
    if is_elsewhere(spec, hv.probe.host()):
        path = hub_path(hv.places.data, mirror_of(hv.places.data, spec))
        send_work(Hub(path), spec.git, task, attempt)
