"""The process trees of attempts: listing them, collecting ended processes, ending a tree.

A worker runs one attempt at a time and is a child subreaper: whatever an attempt forks, through new
sessions and double forks, stays below the worker until the worker has collected it. So a worker
without children has nothing left running. The processes of a killed worker are found by mark,
session and cgroup.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from hypervisor.resources.cgroup import Group
from hypervisor.resources.process_table import (
    Process,
    below,
    command_line,
    descendants,
    environment,
    family,
    pids,
    proportional,
    read_process,
    snapshot,
    written,
)
from hypervisor.runs.processes.kill import (
    MAX_HOLD,
    MIN_PAUSE,
    Reaped,
    TreeSurvived,
    end,
    kill_group,
    untouchable,
)

__all__ = [
    "Group",
    "Process",
    "Reaped",
    "TreeSurvived",
    "alone",
    "become_reaper",
    "command_line",
    "descendants",
    "end_leftovers",
    "family",
    "proportional",
    "reap",
    "snapshot",
    "stop_descendants",
    "written",
]

MARK = "HV_ATTEMPT"
PR_SET_CHILD_SUBREAPER = 36
MAX_CONCURRENT = 10_000  # children collected per call: a process may fork faster than that


def become_reaper() -> bool:
    """From now on, descendants whose parent ends become our children."""
    import ctypes

    no = ctypes.c_ulong(0)
    prctl = ctypes.CDLL(None).prctl
    return bool(prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), no, no, no) == 0)


def alone(spare: Collection[int] = ()) -> bool:
    """Whether we have no children, running or ended, except for the spared ones.

    For a subreaper this proves, in microseconds, that nothing of the attempt is left.
    """
    return _first_ended() is None or (bool(spare) and _children() <= set(spare))


def reap(keep: Collection[int] = ()) -> list[Reaped]:
    """Collect every ended child except for those in `keep`; never waits."""
    reaped: list[Reaped] = []
    for _ in range(MAX_CONCURRENT):
        pid = _first_ended()
        if not pid:
            break
        if pid in keep:  # waitid would return it again: collect the others one by one
            return reaped + _wait_for(_children().difference(keep))
        reaped += _wait_for([pid])
    return reaped


def _first_ended() -> int | None:
    """The pid of an ended child that is not collected yet; 0 if all run, None without children."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return ended.si_pid if ended else 0


def _wait_for(pids: Iterable[int]) -> list[Reaped]:
    reaped = []
    for pid in pids:
        with suppress(ChildProcessError):
            ended, status, used = os.wait4(pid, os.WNOHANG)
            if ended:
                peak = used.ru_maxrss * 1024
                reaped.append(Reaped(pid, status, used.ru_utime + used.ru_stime, peak))
    return reaped


def _children() -> set[int]:
    """Our children, running and ended, from the lists of all our threads."""
    try:
        children: set[int] = set()
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", "rb") as file:
                children.update(map(int, file.read().split()))
        return children
    except OSError:  # the kernel has no such lists, or a thread has just ended
        me = os.getpid()
        return {process.pid for process in snapshot().values() if process.parent == me}


def stop_descendants(
    grace: float, spare: Collection[int] = (), group: Group | None = None
) -> list[Reaped]:
    """End all descendants of this process, and all of `group`, except for the spared ones; returns
    those collected. Raises TreeSurvived some seconds after the grace if that fails.
    """
    own = _Descendants(spare, group)
    try:
        end(own, grace)
    except TreeSurvived as survived:
        survived.reaped = own.reaped
        raise
    return own.reaped


def end_leftovers(
    marks: Collection[str], leader: tuple[int, int] | None, group_path: str | None, grace: float
) -> list[int]:
    """End the processes that a dead worker's attempt left behind; returns their pids.

    These are processes with one of the marks as HV_ATTEMPT in their environment, those in the
    session of `leader` (pid and start), those in the cgroup, and all their descendants; never
    ourselves or our ancestors. Raises TreeSurvived like `stop_descendants`.
    """
    group = Group(group_path) if group_path else None
    leftovers = _Leftovers(marks, leader, group)
    end(leftovers, grace)
    if group and group.exists():
        group.remove()
    return sorted({pid for pid, _ in leftovers.known})


class _Descendants:
    def __init__(self, spare: Collection[int], group: Group | None) -> None:
        self.reaped: list[Reaped] = []
        self._spare = set(spare)
        self._group = group
        self._all: dict[int, Process] = {}

    def find(self) -> list[Process]:
        """Includes zombies: while there is one, a scan may have missed a live process."""
        self.reaped += reap(self._spare)
        members = set(self._group.pids()) if self._group else set()
        if alone(self._spare) and members <= {os.getpid(), *self._spare}:
            return []
        self._all = snapshot()
        processes = descendants(os.getpid(), self._all, self._spare)
        members -= untouchable(self._all, self._spare)
        members -= {process.pid for process in processes}
        return processes + [_member(pid, self._all) for pid in members]

    def signal_all(self, processes: list[Process], number: int) -> None:
        if self._group and number == signal.SIGKILL:
            kill_group(self._group, untouchable(self._all, self._spare))
        own = {process.pid for process in processes}
        others = {process.group for process in self._all.values() if process.pid not in own}
        others |= {0, 1, os.getpgrp()}  # to killpg, 0 is our own group and 1 is every process
        # A process that forks and exits at once is gone before we can signal it, but its process
        # group remains; an uncollected child keeps the group's number from being reused.
        pinned = {p.group for p in processes if p.parent == os.getpid() and not p.lives}
        for process_group in pinned - others:
            with suppress(OSError):
                os.killpg(process_group, number)


class _Leftovers:
    LOOKS = 4  # a process that keeps forking and exiting may slip through one scan

    def __init__(
        self, marks: Collection[str], leader: tuple[int, int] | None, group: Group | None
    ) -> None:
        self.known: set[tuple[int, int]] = set()
        self._marks = set(marks)
        self._leader = leader
        self._group = group
        self._untouchable: set[int] = set()

    def find(self) -> list[Process]:
        for _ in range(self.LOOKS):
            if processes := self._scan():
                return processes
        self._kill_unlisted()
        return []

    def signal_all(self, processes: list[Process], number: int) -> None:
        if self._group and number == signal.SIGKILL:
            kill_group(self._group, self._untouchable)

    def _kill_unlisted(self) -> None:
        """A scan misses processes that fork and exit faster than it reads. But the kernel knows
        whether the cgroup is empty, and can kill all of it at once."""
        until = time.monotonic() + MAX_HOLD
        while self._group and self._group.is_populated() and time.monotonic() < until:
            kill_group(self._group, self._untouchable)
            time.sleep(MIN_PAUSE)

    def _scan(self) -> list[Process]:
        all, marks = {}, {}
        for pid in pids():
            if process := read_process(pid):
                all[pid] = process
                marks[pid] = _marks(pid) if process.lives else set()
        self._untouchable = untouchable(all, ())
        session, members = self._session(all), self._members()
        seeds = members | {
            process.pid
            for process in all.values()
            if (process.pid, process.start) in self.known
            or not self._marks.isdisjoint(marks[process.pid])
            # The session number may now belong to a later attempt, which its mark shows.
            or (process.session == session and not marks[process.pid])
        }
        processes = [_member(pid, all) for pid in seeds] + below(seeds, all, self._untouchable)
        processes = [process for process in processes if process.lives]
        processes = [process for process in processes if process.pid not in self._untouchable]
        self.known.update((process.pid, process.start) for process in processes)
        return processes

    def _session(self, all: Mapping[int, Process]) -> int:
        """The leader's session, or -1: its pid was reused, or it is our own."""
        pid, start = self._leader or (-1, 0)
        now = all.get(pid)
        reused = now is not None and now.start != start
        return -1 if reused or pid <= 0 or pid == os.getsid(0) else pid

    def _members(self) -> set[int]:
        members = set(self._group.pids()) if self._group and self._group.exists() else set()
        return members if members.isdisjoint(self._untouchable) else set()


def _member(pid: int, all: Mapping[int, Process]) -> Process:
    """A member of a cgroup, even if it has started after the scan and exited since."""
    return all.get(pid) or read_process(pid) or Process(pid, 0, 0, 0, 0, 0.0, 0, "", "R")


def _marks(pid: int) -> set[str]:
    """The attempts that a process belongs to, according to its environment."""
    prefix = f"{MARK}=".encode()
    entries = [entry for entry in environment(pid) if entry.startswith(prefix)]
    return {entry.removeprefix(prefix).decode(errors="replace") for entry in entries} - {""}
