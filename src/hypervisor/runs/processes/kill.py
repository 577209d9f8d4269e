"""Ends processes for good, and nobody else's.

A signal goes through a pidfd, and only after the start time behind it was
found to be the one that was meant: a pid that was given away is never hit.
All that is to end is stopped first, so that nothing can fork its way out.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import count
from typing import NamedTuple, Protocol

from hypervisor.resources.cgroup import Group
from hypervisor.resources.process_table import Process, below, look

PATIENCE = 5.0  # seconds that killed processes may take to go
LONGEST_HOLD = 0.5  # seconds to chase new forks before striking at those that were seen
FEWEST_LOOKS = 4  # however long a look takes on a busy machine
SHORTEST_PAUSE = 0.001
LONGEST_PAUSE = 0.05


class Reaped(NamedTuple):
    """A child that ended: its wait status, and CPU and peak memory with all it waited for."""

    pid: int
    status: int
    cpu: float
    peak: int


class TreeSurvived(Exception):
    """Killed, but still there: stuck in the kernel, or not ours to kill."""

    def __init__(self, pids: Collection[int]) -> None:
        self.pids = sorted(pids)
        self.reaped: list[Reaped] = []  # what did end
        super().__init__(f"processes {self.pids} live on although they were killed")


class KillTarget(Protocol):
    def find(self) -> list[Process]:
        """All that is still to be ended."""

    def signal_all(self, found: list[Process], number: int) -> None:
        """Signal at one blow what can be reached so, ahead of the single processes."""


def end(target: KillTarget, grace: float) -> None:
    """TERM, some time, KILL until nothing is found; TreeSurvived if something will not go."""
    started = time.monotonic()
    if grace > 0 and (found := _hold(target, set())):
        for process in found:
            _send(process, signal.SIGTERM, signal.SIGCONT)
        _wait(target, started + grace)
    held: set[tuple[int, int]] = set()
    pause = SHORTEST_PAUSE
    while found := _hold(target, held):
        target.signal_all(found, signal.SIGKILL)
        for process in found:
            _send(process, signal.SIGKILL)
        if time.monotonic() > started + grace + PATIENCE:
            living = [process.pid for process in found if process.lives]
            raise TreeSurvived(living or [process.pid for process in found])
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _hold(target: KillTarget, held: set[tuple[int, int]]) -> list[Process]:
    """Stop all of it, so that nothing forks, or goes and leaves a child nobody can trace."""
    until = time.monotonic() + LONGEST_HOLD
    for looks in count(1):
        found = target.find()
        fresh = [process for process in found if (process.pid, process.start) not in held]
        if not fresh or (looks >= FEWEST_LOOKS and time.monotonic() > until):
            break
        target.signal_all(found, signal.SIGSTOP)
        for process in fresh:
            _send(process, signal.SIGSTOP)
            held.add((process.pid, process.start))
    return found


def _wait(target: KillTarget, until: float) -> None:
    pause = SHORTEST_PAUSE
    while target.find() and (left := until - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)


def _send(process: Process, *signals: int) -> None:
    if not process.lives:
        return
    handle = None
    with suppress(OSError, AttributeError):  # too old a kernel, or another system
        handle = os.pidfd_open(process.pid)
    try:
        now = look(process.pid)
        if now is None or now.start != process.start:
            return
        for number in signals:
            if handle is None:
                os.kill(process.pid, number)
            else:
                signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        if handle is not None:
            os.close(handle)


def untouchable(all: Mapping[int, Process], spare: Collection[int]) -> set[int]:
    """Ourselves, what we hang below, the spared and what hangs below them."""
    kept = {os.getpid(), *spare}
    kept.update(process.pid for process in below(spare, all, kept))
    pid = os.getpid()
    while (process := all.get(pid)) and process.parent not in kept:
        pid = process.parent
        kept.add(pid)
    return kept


def kill_group(group: Group, kept: set[int]) -> None:
    """Kill all of the group at once, if nobody to be kept is in it."""
    if group.exists() and kept.isdisjoint(group.pids()):
        group.kill()
