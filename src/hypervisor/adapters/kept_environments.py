"""The environments that runs were started with, kept in the runtime folder for their workers.

Whoever keeps one holds it, by a shared lock on its file, until its tasks are in the store and a
supervisor is there. So a supervisor that is about to leave removes none of a run that is just
being submitted; and what a client left that was killed is held by nobody.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress

from hypervisor.adapters.places import make_private

ENDING, NEW = ".env", ".new"


class KeptEnvironments:
    def __init__(self, runtime: str) -> None:
        self._runtime = runtime
        self._held: list[int] = []
        self._ours: dict[str, tuple[int, int]] = {}

    def keep(self, batch: str) -> None:
        make_private(self._runtime)
        path = self._path(batch)
        fresh = f"{path}.{os.urandom(4).hex()}{NEW}"  # others may keep one of the same batch
        handle = _held(fresh)
        self._held.append(handle)
        text = b"\0".join(b"%s=%s" % pair for pair in os.environb.items())
        while text:
            text = text[os.write(handle, text) :]
        self._ours[batch] = _mark(os.fstat(handle))
        os.rename(fresh, path)

    def read(self, batch: str) -> dict[str, str] | None:
        try:
            with open(self._path(batch), "rb") as file:
                entries = os.fsdecode(file.read()).split("\0")
        except OSError:
            return None
        return dict(entry.split("=", 1) for entry in entries if "=" in entry)

    def let_go(self) -> None:
        """Hold none any more: the tasks are where a supervisor sees them."""
        while self._held:
            os.close(self._held.pop())

    def forget(self, batch: str) -> None:
        """The run is over. Not if somebody has kept another since, to run it again."""
        path = self._path(batch)
        with suppress(OSError):
            if _mark(os.stat(path)) == self._ours.get(batch):
                os.unlink(path)

    def remove_unheld(self, is_needed: Callable[[], bool]) -> bool:
        """Remove what nobody holds, unless the answer is yes: there is work. Asked when all of it
        is in our hands, so that the tasks of whoever has let go are seen. Says if it was done."""
        taken = [each for each in map(_taken, self._paths()) if each is not None]
        try:
            if is_needed():
                return False
            for path, _ in taken:
                with suppress(FileNotFoundError):  # a client forgets its own
                    os.unlink(path)
            return True
        finally:
            for _, handle in taken:
                os.close(handle)

    def _paths(self) -> list[str]:
        with suppress(FileNotFoundError):
            names = os.listdir(self._runtime)
            ours = (n for n in names if n.endswith(ENDING) or (ENDING in n and n.endswith(NEW)))
            return [os.path.join(self._runtime, name) for name in ours]
        return []

    def _path(self, batch: str) -> str:
        return os.path.join(self._runtime, f"{batch}{ENDING}")


def _held(path: str) -> int:
    """A new file that is held."""
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_SH)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # a supervisor took it for left behind, before we held it


def _taken(path: str) -> tuple[str, int] | None:
    """A file that nobody holds, in our hands alone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return path, handle


def _mark(found: os.stat_result) -> tuple[int, int]:
    return found.st_ino, found.st_mtime_ns
