"""A disk in memory under the real files: it can lose power, and a sync can fail."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

from hypervisor.selftest.recorded_disk import Disk


class PowerCut(Exception):
    """The power is off. Nothing that happens now reaches the disk."""


class SimulatedDisk:
    """Takes down what SQLite does, as `recorded_disk.Notes`. One at a time."""

    def __init__(self) -> None:
        self._disk = Disk()
        self._operations_left: int | None = None  # until the power is cut
        self._sync_fails = False
        self.is_off = False
        self.has_failed = False  # a sync; reset by the world

    def __enter__(self) -> SimulatedDisk:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def note(self, *entry: Any) -> None:
        if self.is_off:
            return
        if self._operations_left == 0:
            self.is_off = True
            raise PowerCut
        if self._operations_left is not None:
            self._operations_left -= 1
        if entry[0] == "sync" and self._sync_fails:
            self._sync_fails, self.has_failed = False, True
            self._disk.drop_unsynced(entry[1])
            raise OSError(errno.EIO, "Input/output error (simulated)")
        self._disk.play(entry)

    def cut_after(self, operations: int) -> None:
        self._operations_left = operations

    def fail_next_sync(self) -> None:
        self._sync_fails = True

    def behave(self) -> None:
        """No more faults."""
        self._operations_left, self._sync_fails = None, False

    def cut(self, folder: Path, dice: random.Random) -> None:
        """Cut the power and write the files that are left into the folder; start with those."""
        files = self._disk.cut(dice)
        self._disk = Disk()
        self.behave()
        self.is_off = False
        folder.mkdir()
        for name, data in files.items():
            path = folder / name
            path.write_bytes(data)
            self._disk.load(name, os.stat(path).st_ino, data)

    def begin(self) -> None:
        """A new, empty disk."""
        self.__init__()  # type: ignore[misc]
