"""The environments that runs were started with, kept in the runtime folder for their workers.
They may hold secrets: where that folder is on a disk, none is kept.

A submitting process shares a lock until its tasks are in the store. A supervisor leaves, and takes
all environments away, only while it has that lock alone: so it sees all tasks that rely on it, and
no environment is deleted while tasks are being added.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from hypervisor.core.places import is_in_memory, make_private, take_lock

ENDING, NEW = ".env", ".new"
LOCK = "submitting.lock"
PATIENCE = 5.0  # seconds; a supervisor that hangs while it exits must not block us


class KeptEnvironments:
    def __init__(self, runtime: str, environment: Mapping[str, str] = os.environ) -> None:
        self._runtime = runtime
        self._environment = environment
        self._ours: dict[str, tuple[int, int]] = {}

    @contextmanager
    def submitting(self) -> Iterator[None]:
        """No supervisor exits inside this block; one that is exiting is waited for."""
        handle = self._open()
        try:
            until = time.monotonic() + PATIENCE
            while not take_lock(handle, fcntl.LOCK_SH) and time.monotonic() < until:
                time.sleep(0.002)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """False while a run is being submitted."""
        handle = self._open()
        try:
            yield take_lock(handle, fcntl.LOCK_EX)
        finally:
            os.close(handle)

    def keep(self, batch: str) -> bool:
        """False without a file system in memory to store it in."""
        if not is_in_memory(make_private(self._runtime)):
            return False
        path = self._path(batch)
        fresh = f"{path}.{os.urandom(4).hex()}{NEW}"  # others may keep one of the same batch
        with open(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            lines = (f"{name}={value}" for name, value in self._environment.items())
            file.write(os.fsencode("\0".join(lines)))
            file.flush()
            self._ours[batch] = _mark(os.fstat(file.fileno()))
        os.rename(fresh, path)
        return True

    def read(self, batch: str) -> dict[str, str] | None:
        try:
            with open(self._path(batch), "rb") as file:
                entries = os.fsdecode(file.read()).split("\0")
        except OSError:
            return None
        return dict(entry.split("=", 1) for entry in entries if "=" in entry)

    def forget(self, batch: str) -> None:
        """After a run has ended. An environment saved since, by another run, is kept."""
        path = self._path(batch)
        with suppress(OSError), self.alone() as nobody_submits:
            if nobody_submits and _mark(os.stat(path)) == self._ours.get(batch):
                os.unlink(path)

    def remove_all(self) -> None:
        for name in os.listdir(self._runtime):
            if name.endswith(ENDING) or (ENDING in name and name.endswith(NEW)):
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._runtime, name))

    def _open(self) -> int:
        make_private(self._runtime)
        path = os.path.join(self._runtime, LOCK)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _path(self, batch: str) -> str:
        return os.path.join(self._runtime, f"{batch}{ENDING}")


def _mark(status: os.stat_result) -> tuple[int, int]:
    return status.st_ino, status.st_mtime_ns
