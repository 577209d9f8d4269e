"""A cgroup (version 2) of our own, where the host allows it.

No process leaves it by a fork, a new session or a new environment, so it shows
what an attempt has left behind. Only the unified hierarchy is used, wherever it
is mounted; no controller is enabled.

Containers may share a hierarchy and cannot see each other's processes. So a group is never taken
over, and its creator keeps its folder locked, which every namespace can see.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress

from hypervisor.core.mounts import Mount, read_mounts

KIND = "cgroup2"
MEMBERS = "cgroup.procs"
MAX_TRIES, PAUSE = 40, 0.005  # to remove a group that is still busy, in seconds


class Group:
    def __init__(self, path: str) -> None:
        self.path = path
        self._handle = -1  # of the lock, in the process that created it

    @classmethod
    def make(cls, name: str) -> Group | None:
        """A new group below our own, or None if it cannot be created and entered. It is ours
        until we exit, even if it is empty."""
        home = own_path()
        if home is None or not name or "/" in name or name.startswith("."):
            return None
        group = cls(os.path.join(home, name))
        try:
            os.mkdir(group.path, 0o755)
        except OSError:
            return None
        if group._take() and group._can_be_entered():
            return group
        group.remove()
        return None

    @classmethod
    def find(cls, name: str) -> Group | None:
        """The group of that name, anywhere in the hierarchy."""
        for folder, _, _ in os.walk(_mount_point()):
            if os.path.basename(folder) == name:
                return cls(folder)
        return None

    def remove_if_abandoned(self) -> None:
        """Remove it if its creator has exited and it is empty."""
        if self.exists() and not self.is_populated() and self._take():
            self.remove()

    def _take(self) -> bool:
        """Lock the folder, and check that it has not been removed since."""
        try:
            self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.stat(self.path).st_ino == os.fstat(self._handle).st_ino
        except OSError:
            self._let_go()
            return False

    def _let_go(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def exists(self) -> bool:
        """Whether it exists; the root group does not count."""
        return os.path.exists(os.path.join(self.path, "cgroup.events"))

    def is_populated(self) -> bool:
        """Whether there is any process in it or in the groups below it."""
        try:
            with open(os.path.join(self.path, "cgroup.events"), encoding="ascii") as file:
                return "populated 1" in file.read()
        except OSError:
            return False

    def enter(self, pid: int = 0) -> bool:
        """Move a process into it, by default our own; its later children are in it, too."""
        return _write(os.path.join(self.path, MEMBERS), str(pid))

    def pids(self) -> list[int]:
        """All processes in it and in the groups below it."""
        pids: list[int] = []
        for folder, _, _ in os.walk(self.path):
            with suppress(OSError), open(os.path.join(folder, MEMBERS), encoding="ascii") as file:
                pids += map(int, file.read().split())
        return [pid for pid in pids if pid]  # 0 stands for a process of another namespace

    def kill(self) -> None:
        """Kill everything in it at once, including new forks (Linux 5.14)."""
        _write(os.path.join(self.path, "cgroup.kill"), "1")

    def remove(self) -> None:
        """Remove it and the groups below it, if they are empty."""
        for folder, _, _ in os.walk(self.path, topdown=False):
            _remove(folder)
        self._let_go()

    def _can_be_entered(self) -> bool:
        """Try it with another process: we might not be able to leave again."""
        read_end, write_end = os.pipe()
        probe = 0
        with suppress(OSError):
            probe = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", "read line"],
                {},
                file_actions=[(os.POSIX_SPAWN_DUP2, read_end, 0)],
            )
        entered = probe > 0 and self.enter(probe)
        os.close(read_end)
        os.close(write_end)
        if probe:
            os.waitpid(probe, 0)
        return entered


def _remove(folder: str) -> None:
    """A process that was just killed keeps its group busy for a moment."""
    for _ in range(MAX_TRIES):
        try:
            return os.rmdir(folder)
        except OSError as error:
            if error.errno != errno.EBUSY:
                return None
        time.sleep(PAUSE)


def remove_abandoned_groups(prefix: str) -> None:
    """Remove groups below our own whose creators, in any container, died before they could."""
    home = own_path()
    for name in os.listdir(home) if home and os.path.isdir(home) else []:
        if name.startswith(prefix):
            Group(os.path.join(home or "", name)).remove_if_abandoned()


def own_path() -> str | None:
    """The directory of the group we are in, if there is a unified hierarchy."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            own = next((line[3:].rstrip("\n") for line in file if line.startswith("0::")), None)
        return None if own is None else _locate(own, read_mounts())
    except OSError:
        return None


def _mount_point() -> str:
    """Where the hierarchy is mounted, usually once."""
    with suppress(OSError):
        return next((mount.point for mount in read_mounts() if mount.kind == KIND), "")
    return ""


def _locate(own: str, mounts: list[Mount]) -> str | None:
    """The path of a group below one of these mounts."""
    for mount in mounts:
        if mount.kind == KIND:
            below = os.path.relpath(own, mount.root)
            if ".." not in (own.split("/") + mount.root.split("/") + below.split("/")):
                return os.path.normpath(os.path.join(mount.point, below))
    return None


def _write(path: str, text: str) -> bool:
    try:
        handle = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        os.write(handle, text.encode())
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
