"""The processes of this host, read cheaply from /proc."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping

from hypervisor.core.records import NamedTuple
from hypervisor.resources.host import DEAD_STATES

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


def snapshot(proc: str = "/proc") -> dict[int, Process]:
    """All processes of this host that we can see, including zombies."""
    return {pid: process for pid in pids(proc) if (process := read_process(pid, proc))}


def pids(proc: str = "/proc") -> list[int]:
    """Of all processes, mostly newest first, because those are likely to end soon."""
    return [int(entry) for entry in reversed(os.listdir(proc)) if entry.isdecimal()]


def descendants(
    root: int, all: Mapping[int, Process], spare: Collection[int] = ()
) -> list[Process]:
    """All descendants of `root`, parents first, without those in `spare` and below."""
    return below([root], all, spare)


def family(root: int) -> list[Process]:
    """All descendants of `root`, for measuring. It may miss one that is just starting or ending;
    to end a tree, use `descendants`."""
    return descendants(root, families([root]))


def families(roots: Iterable[int], proc: str = "/proc") -> dict[int, Process]:
    """At least these processes and all their descendants. Only these if the kernel keeps lists of
    children; then the cost does not depend on the number of other processes."""
    if not lists_children(proc):
        return snapshot(proc)
    processes: dict[int, Process] = {}
    remaining = list(roots)
    while remaining:
        pid = remaining.pop()
        if pid not in processes and (process := read_process(pid, proc)):
            processes[pid] = process
            remaining += children_of(pid, proc)
    return processes


def lists_children(proc: str = "/proc") -> bool:
    """Whether this kernel keeps the lists that `children_of` reads."""
    return os.path.exists(f"{proc}/thread-self/children")


def children_of(pid: int, proc: str = "/proc") -> list[int]:
    """The children of a process: each of its threads has a list of those it started."""
    try:
        return [
            int(child)
            for thread in os.listdir(f"{proc}/{pid}/task")
            for child in read_proc(f"{proc}/{pid}/task/{thread}/children").split()
        ]
    except OSError:
        return []


def written(pids: Iterable[int]) -> int:
    """Bytes that these processes have written so far, to anything."""
    return sum(_number_after(f"/proc/{pid}/io", b"wchar:") or 0 for pid in pids)


def proportional(pids: Iterable[int], proc: str = "/proc") -> int:
    """Memory in bytes, with shared pages divided among processes: slower than `rss`, but exact."""
    total = 0
    for pid in pids:
        kilobytes = _number_after(f"{proc}/{pid}/smaps_rollup", b"\nPss:")
        if kilobytes is not None:
            total += kilobytes * 1024
        elif process := read_process(pid, proc):
            total += process.rss
    return total


def environment(pid: int) -> list[bytes]:
    """The environment a process was started with; empty if we may not read it."""
    return read_proc(f"/proc/{pid}/environ").split(b"\0")


def command_line(pid: int) -> list[bytes]:
    """The arguments a process was started with; empty if we may not read them."""
    return read_proc(f"/proc/{pid}/cmdline").split(b"\0")


def below(
    roots: Collection[int], all: Mapping[int, Process], spare: Collection[int]
) -> list[Process]:
    """All descendants of any of `roots`, like `descendants`."""
    children: dict[int, list[Process]] = {}
    for process in all.values():
        children.setdefault(process.parent, []).append(process)
    result: list[Process] = []
    remaining, seen = list(roots), {*roots, *spare}
    while remaining:
        new = [child for child in children.get(remaining.pop(), ()) if child.pid not in seen]
        result += new
        remaining += [child.pid for child in new]
        seen.update(child.pid for child in new)
    return result


def read_process(pid: int | str, proc: str = "/proc") -> Process | None:
    """One process (`self`: our own), or None if it is gone."""
    before, _, after = read_proc(f"{proc}/{pid}/stat", whole=False).rpartition(b")")
    fields = after.split(None, 22)
    try:
        state, numbers = fields[0].decode(), [int(field) for field in fields[1:22]]
        parent, group, session = numbers[:3]
        user, system, waited_user, waited_system = numbers[10:14]
        threads, start, rss = numbers[16], numbers[18], numbers[20] * PAGE
    except (ValueError, IndexError):
        return None
    if state == "Z" and threads > 1:
        state = "S"  # only the main thread has ended
    number, _, name = before.partition(b"(")
    return Process(
        pid if isinstance(pid, int) else int(number),
        parent,
        group,
        session,
        start,
        (user + system) / TICKS,
        rss,
        name.decode(errors="replace"),
        state,
        (waited_user + waited_system) / TICKS,
    )


def read_proc(path: str, whole: bool = True) -> bytes:
    """A file in /proc or of a cgroup; empty if the process is gone or we may not read it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a file object costs twice as much
    except (OSError, ValueError):
        return b""
    try:
        data = os.read(handle, 4096)
        while whole and (block := os.read(handle, 1 << 16)):
            data += block
        return data
    except OSError:
        return b""
    finally:
        os.close(handle)


def _number_after(path: str, word: bytes) -> int | None:
    rest = read_proc(path).partition(word)[2].split(None, 1)
    return int(rest[0]) if rest and rest[0].isdigit() else None
