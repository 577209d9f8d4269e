"""Seeing the processes of this machine: one cheap pass over /proc, else psutil."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from hypervisor.resources.host import DEAD_STATES

LINUX = os.path.exists("/proc/self/stat")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Process(NamedTuple):
    """`start` is in the unit of `host.process_start`, `cpu` its own seconds, `rss` in bytes."""

    pid: int
    parent: int
    group: int
    session: int
    start: int
    cpu: float
    rss: int
    name: str
    state: str
    waited: float = 0.0  # CPU seconds of its children that have ended

    @property
    def lives(self) -> bool:
        return self.state not in DEAD_STATES


def snapshot() -> dict[int, Process]:
    """Every process on this machine that we may see, zombies too."""
    return {process.pid: process for process in map(look, pids()) if process}


def pids() -> list[int]:
    """Of all processes, mostly the newest first: the likeliest to be gone soon."""
    if LINUX:
        return [int(entry) for entry in reversed(os.listdir("/proc")) if entry.isdecimal()]
    import psutil

    return psutil.pids()[::-1]


def descendants(
    root: int, all: Mapping[int, Process], spare: Collection[int] = ()
) -> list[Process]:
    """All below `root`, parents first, without the spared and what hangs below them."""
    return below([root], all, spare)


def family(root: int) -> list[Process]:
    """All below `root` as the kernel's lists of children tell: what it costs depends on these
    alone, not on how many others there are. It may miss one that comes or goes just now, so
    it is for measuring; whoever ends a tree takes `descendants`."""
    if not lists_children():
        return descendants(root, snapshot())
    found: list[Process] = []
    more, passed = [root], {root}
    while more:
        fresh = [pid for pid in children_of(more.pop()) if pid not in passed]
        passed.update(fresh)
        more += fresh
        found += [process for process in map(look, fresh) if process]
    return found


def lists_children(proc: str = "/proc") -> bool:
    """Whether this kernel keeps the lists that `children_of` reads."""
    return os.path.exists(f"{proc}/thread-self/children")


def children_of(pid: int, proc: str = "/proc") -> list[int]:
    """The children of a process: each of its threads has a list of those it started."""
    try:
        return [
            int(child)
            for thread in os.listdir(f"{proc}/{pid}/task")
            for child in _read(f"{proc}/{pid}/task/{thread}/children").split()
        ]
    except OSError:
        return []


def written(pids: Iterable[int]) -> int:
    """Bytes these processes have written so far, to whatever."""
    return sum(_number_after(f"/proc/{pid}/io", b"wchar:") or 0 for pid in pids)


def proportional(pids: Iterable[int]) -> int:
    """Memory in bytes, with shared pages shared out: dearer than `rss`, but adds up."""
    total = 0
    for pid in pids:
        kilobytes = _number_after(f"/proc/{pid}/smaps_rollup", b"\nPss:")
        if kilobytes is not None:
            total += kilobytes * 1024
        elif process := look(pid):
            total += process.rss
    return total


def environment(pid: int) -> list[bytes]:
    """The entries a process was started with; none where they are not ours to read."""
    if LINUX:
        return _read(f"/proc/{pid}/environ").split(b"\0")
    import psutil

    try:
        entries = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return []
    return [os.fsencode(f"{name}={value}") for name, value in entries.items()]


def command_line(pid: int) -> list[bytes]:
    """The words a process was started with; none where they are not ours to read."""
    if LINUX:
        return _read(f"/proc/{pid}/cmdline").split(b"\0")
    import psutil

    try:
        return [os.fsencode(word) for word in psutil.Process(pid).cmdline()]
    except (psutil.Error, OSError):
        return []


def below(
    roots: Collection[int], all: Mapping[int, Process], spare: Collection[int]
) -> list[Process]:
    """All below any of `roots`, like `descendants`."""
    children: dict[int, list[Process]] = {}
    for process in all.values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    more, passed = list(roots), {*roots, *spare}
    while more:
        fresh = [child for child in children.get(more.pop(), ()) if child.pid not in passed]
        found += fresh
        more += [child.pid for child in fresh]
        passed.update(child.pid for child in fresh)
    return found


def look(pid: int) -> Process | None:
    """One process, or None if it is gone."""
    if not LINUX:
        return _look_through_psutil(pid)
    stat = _read(f"/proc/{pid}/stat", whole=False)
    if not stat:
        return None
    before, _, after = stat.rpartition(b")")
    fields = after.split(None, 22)
    state = fields[0].decode()
    if state == "Z" and int(fields[17]) > 1:
        state = "S"  # only the main thread has ended
    return Process(
        pid,
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        int(fields[19]),
        (int(fields[11]) + int(fields[12])) / TICKS,
        int(fields[21]) * PAGE,
        before.partition(b"(")[2].decode(errors="replace"),
        state,
        (int(fields[13]) + int(fields[14])) / TICKS,
    )


def _read(path: str, whole: bool = True) -> bytes:
    """What a file in /proc says: nothing if the process is gone or not ours to read."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
    try:
        text = os.read(handle, 4096)
        while whole and (piece := os.read(handle, 65536)):
            text += piece
        return text
    except (ProcessLookupError, PermissionError):
        return b""
    finally:
        os.close(handle)


def _number_after(path: str, word: bytes) -> int | None:
    _, found, rest = _read(path).partition(word)
    return int(rest.split(None, 1)[0]) if found else None


def _look_through_psutil(pid: int) -> Process | None:
    import psutil

    try:
        found = psutil.Process(pid)
        with found.oneshot():
            state = "Z" if found.status() == psutil.STATUS_ZOMBIE else "S"
            start = int(found.create_time() * 1000)
            parent, name = found.ppid(), found.name()
            group, session = os.getpgid(pid), os.getsid(pid)
            try:
                times, rss = found.cpu_times(), found.memory_info().rss
                cpu = times.user + times.system
            except psutil.Error:
                cpu, rss = 0.0, 0
    except (psutil.Error, OSError):
        return None
    return Process(pid, parent, group, session, start, cpu, rss, name, state)
