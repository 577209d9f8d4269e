"""The lease of this host, in a file that its processes share: they need no SQL to know it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hypervisor.core.places import make_private, take_lock
from hypervisor.queue.host import LocalLease

FILE, LOCK, STOPS = "lease", "lease.lock", "stops"


def boot_clock() -> int:
    """Milliseconds since boot, suspended time included. Nobody can set it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class LeaseFile:
    def __init__(self, runtime: str) -> None:
        self._runtime = runtime
        self._path, self._stops = os.path.join(runtime, FILE), os.path.join(runtime, STOPS)
        self._seen: tuple[int, int] | None = None
        self._lease: LocalLease | None = None

    def read(self) -> LocalLease | None:
        """None: this host has none. Read again only if it has changed."""
        try:
            status = os.stat(self._path)
            seen = (status.st_ino, status.st_mtime_ns)
            if seen != self._seen:
                with open(self._path, encoding="utf-8") as file:
                    host, *numbers = file.read().split()
                self._lease, self._seen = LocalLease(host, *map(int, numbers)), seen
        except (OSError, ValueError, TypeError):
            return None
        return self._lease

    def publish(self, lease: LocalLease, is_new: bool = False) -> None:
        """Unless another process has published a later one. `is_new`: just registered; its epoch
        may be lower than the last if the database was restored from a backup."""
        last = self.read()
        if last and not is_new and last.host == lease.host and last.epoch > lease.epoch:
            return
        self._write(self._path, " ".join(map(str, lease)))

    def remove(self) -> None:
        for path in (self._path, self._stops):
            with suppress(FileNotFoundError):
                os.unlink(path)

    def publish_stops(self, mark: str) -> None:
        """Let workers know that a stop was requested, for one of them or for others."""
        if mark != self.stops():
            self._write(self._stops, mark)

    def stops(self) -> str:
        """Changes when a stop is requested. "": the supervisor does not look."""
        with suppress(OSError), open(self._stops, encoding="utf-8") as file:
            return file.read()
        return ""

    def _write(self, path: str, text: str) -> None:
        make_private(self._runtime)
        temporary = f"{path}.{os.getpid()}.new"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(temporary, path)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether this process may renew the lease; one at a time is enough."""
        handle = os.open(os.path.join(self._runtime, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            yield take_lock(handle, fcntl.LOCK_EX)
        finally:
            os.close(handle)
