"""The process trees of attempts: seeing them, collecting what ended, ending all of it.

A worker runs one attempt at a time and is a child subreaper: whatever an
attempt forks, through new sessions and double forks, hangs below the worker
until the worker has collected it. So as long as anything lives, the worker has
a child, and without a child nothing is left. Of a worker that was killed, the
rest is found by mark, session and cgroup.
"""

from __future__ import annotations

import os
import signal
import sys
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
    look,
    pids,
    proportional,
    snapshot,
    written,
)
from hypervisor.runs.processes.kill import (
    LONGEST_HOLD,
    SHORTEST_PAUSE,
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
MOST_AT_ONCE = 10_000  # children to collect: somebody may fork faster than we can do it
PEAK_UNIT = 1 if sys.platform == "darwin" else 1024


def become_reaper() -> bool:
    """From now on, descendants whose parent ends become our children."""
    if sys.platform != "linux":
        return False
    import ctypes

    no = ctypes.c_ulong(0)
    prctl = ctypes.CDLL(None).prctl
    return bool(prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), no, no, no) == 0)


def alone(spare: Collection[int] = ()) -> bool:
    """Whether we have no child, running or ended, but the spared.

    To a reaper this proves, in microseconds, that nothing of the attempt is left.
    """
    return _first_ended() is None or (bool(spare) and _children() <= set(spare))


def reap(keep: Collection[int] = ()) -> list[Reaped]:
    """Collect every child that has ended, but for those in `keep`; never waits."""
    reaped: list[Reaped] = []
    for _ in range(MOST_AT_ONCE):
        pid = _first_ended()
        if not pid:
            break
        if pid in keep:  # it would stay the first: look at each of the others
            return reaped + _wait_for(_children().difference(keep))
        reaped += _wait_for([pid])
    return reaped


def _first_ended() -> int | None:
    """A child that has ended, still to be collected; 0 if all run, None without children."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        own = [process for process in snapshot().values() if process.parent == os.getpid()]
        return next((process.pid for process in own if not process.lives), 0) if own else None
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
                peak = used.ru_maxrss * PEAK_UNIT
                reaped.append(Reaped(pid, status, used.ru_utime + used.ru_stime, peak))
    return reaped


def _children() -> set[int]:
    """Our children, running and ended: each is in the list of one of our threads."""
    try:
        found: set[int] = set()
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", "rb") as file:
                found.update(map(int, file.read().split()))
        return found
    except OSError:  # not in this kernel; or a thread has just ended and passed its list on
        me = os.getpid()
        return {process.pid for process in snapshot().values() if process.parent == me}


def stop_descendants(
    grace: float, spare: Collection[int] = (), group: Group | None = None
) -> list[Reaped]:
    """End all below this process, and in `group`, but for the spared; returns those collected.

    Takes no longer than the grace and some seconds, then raises TreeSurvived.
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
    """End what a dead worker's attempt left behind; returns the pids of what was found.

    Found are processes with one of the marks as HV_ATTEMPT in their environment, those in the
    session of `leader` (pid and start), those in the cgroup, and all below them; never ourselves
    or what we hang below. Raises TreeSurvived like `stop_descendants`.
    """
    group = Group(group_path) if group_path else None
    left = _Leftovers(marks, leader, group)
    end(left, grace)
    if group and group.exists():
        group.remove()
    return sorted({pid for pid, _ in left.known})


class _Descendants:
    def __init__(self, spare: Collection[int], group: Group | None) -> None:
        self.reaped: list[Reaped] = []
        self._spare = set(spare)
        self._group = group
        self._all: dict[int, Process] = {}

    def find(self) -> list[Process]:
        """Zombies too: while one hangs below us, so may something that a scan has missed."""
        self.reaped += reap(self._spare)
        members = set(self._group.pids()) if self._group else set()
        if alone(self._spare) and members <= {os.getpid(), *self._spare}:
            return []
        self._all = snapshot()
        found = descendants(os.getpid(), self._all, self._spare)
        members -= untouchable(self._all, self._spare)
        members -= {process.pid for process in found}
        return found + [_member(pid, self._all) for pid in members]

    def signal_all(self, found: list[Process], number: int) -> None:
        if self._group and number == signal.SIGKILL:
            kill_group(self._group, untouchable(self._all, self._spare))
        own = {process.pid for process in found}
        others = {process.group for process in self._all.values() if process.pid not in own}
        others |= {0, 1, os.getpgrp()}  # the first two would mean our own group, and everybody
        # Whoever forks and exits at once is gone when its turn comes, but its process group
        # is not; and an uncollected child keeps the number from being given away.
        pinned = {p.group for p in found if p.parent == os.getpid() and not p.lives}
        for process_group in pinned - others:
            with suppress(OSError):
                os.killpg(process_group, number)


class _Leftovers:
    LOOKS = 4  # whatever forks and exits all the time may slip through one scan

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
            if found := self._scan():
                return found
        self._kill_unlisted()
        return []

    def signal_all(self, found: list[Process], number: int) -> None:
        if self._group and number == signal.SIGKILL:
            kill_group(self._group, self._untouchable)

    def _kill_unlisted(self) -> None:
        """Lists miss what forks and exits faster than they are read. That somebody is in the
        group is always told, and all of it can be killed at one blow."""
        until = time.monotonic() + LONGEST_HOLD
        while self._group and self._group.is_populated() and time.monotonic() < until:
            kill_group(self._group, self._untouchable)
            time.sleep(SHORTEST_PAUSE)

    def _scan(self) -> list[Process]:
        all, marks = {}, {}
        for pid in pids():
            if process := look(pid):
                all[pid] = process
                marks[pid] = _marks(pid) if process.lives else set()
        self._untouchable = untouchable(all, ())
        session, members = self._session(all), self._members()
        seeds = members | {
            process.pid
            for process in all.values()
            if (process.pid, process.start) in self.known
            or not self._marks.isdisjoint(marks[process.pid])
            # The number of a session may be a later attempt's by now, which its mark shows.
            or (process.session == session and not marks[process.pid])
        }
        found = [_member(pid, all) for pid in seeds] + below(seeds, all, self._untouchable)
        found = [process for process in found if process.lives]
        found = [process for process in found if process.pid not in self._untouchable]
        self.known.update((process.pid, process.start) for process in found)
        return found

    def _session(self, all: Mapping[int, Process]) -> int:
        """The leader's session, or -1: its pid is another's by now, or it is our own."""
        pid, start = self._leader or (-1, 0)
        now = all.get(pid)
        reused = now is not None and now.start != start
        return -1 if reused or pid <= 0 or pid == os.getsid(0) else pid

    def _members(self) -> set[int]:
        members = set(self._group.pids()) if self._group and self._group.exists() else set()
        return members if members.isdisjoint(self._untouchable) else set()


def _member(pid: int, all: Mapping[int, Process]) -> Process:
    """One of a group, though it may have come after the scan and be gone again by now."""
    return all.get(pid) or look(pid) or Process(pid, 0, 0, 0, 0, 0.0, 0, "", "R")


def _marks(pid: int) -> set[str]:
    """The attempts that a process says it belongs to."""
    prefix = f"{MARK}=".encode()
    entries = [entry for entry in environment(pid) if entry.startswith(prefix)]
    return {entry.removeprefix(prefix).decode(errors="replace") for entry in entries} - {""}
