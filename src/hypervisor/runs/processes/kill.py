"""Kills process trees reliably, and never an unrelated process.

A signal is sent through a pidfd, after the start time has been checked, so a reused pid is never
hit. All processes are stopped with SIGSTOP first, so that none can fork its way out.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import count
from typing import Protocol

from hypervisor.core.records import NamedTuple
from hypervisor.resources.cgroup import Group
from hypervisor.resources.process_table import Process, below, read_process

PATIENCE = 5.0  # seconds that killed processes may take to exit
MAX_HOLD = 0.5  # seconds to look for new forks before killing those found so far
MIN_LOOKS = 4  # even if a scan is slow on a busy machine
MIN_PAUSE = 0.001
MAX_PAUSE = 0.05


class Reaped(NamedTuple):
    """An ended child: its wait status, and CPU and peak memory including its own children."""

    pid: int
    status: int
    cpu: float
    peak: int


class TreeSurvived(Exception):
    """Processes survived SIGKILL: they are stuck in the kernel, or belong to another user."""

    def __init__(self, pids: Collection[int]) -> None:
        self.pids = sorted(pids)
        self.reaped: list[Reaped] = []  # what did end
        super().__init__(f"processes {self.pids} are still alive after SIGKILL")


class KillTarget(Protocol):
    def find(self) -> list[Process]:
        """The processes that are still to be ended."""

    def signal_all(self, processes: list[Process], number: int) -> None:
        """Signal whole groups where possible, before the single processes."""


def end(target: KillTarget, grace: float) -> None:
    """SIGTERM, then after `grace` seconds SIGKILL until no process is left. Raises TreeSurvived if
    some do not exit."""
    started = time.monotonic()
    if grace > 0 and (processes := _hold(target, set())):
        for process in processes:
            send(process, *_gently(process))
        _wait(target, started + grace)
    stopped: set[tuple[int, int]] = set()
    pause = MIN_PAUSE
    while processes := _hold(target, stopped):
        target.signal_all(processes, signal.SIGKILL)
        for process in processes:
            send(process, signal.SIGKILL)
        if time.monotonic() > started + grace + PATIENCE:
            living = [process.pid for process in processes if process.lives]
            raise TreeSurvived(living or [process.pid for process in processes])
        time.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE)


def _gently(process: Process) -> tuple[int, ...]:
    """bubblewrap would end at once, and with it what it runs, which has its own SIGTERM."""
    if process.name == "bwrap":
        return (signal.SIGCONT,)
    return (signal.SIGTERM, signal.SIGCONT)


def _hold(target: KillTarget, stopped: set[tuple[int, int]]) -> list[Process]:
    """SIGSTOP all processes, so that none forks, or exits and leaves a hidden child."""
    until = time.monotonic() + MAX_HOLD
    for looks in count(1):
        processes = target.find()
        new = [process for process in processes if (process.pid, process.start) not in stopped]
        if not new or (looks >= MIN_LOOKS and time.monotonic() > until):
            break
        target.signal_all(processes, signal.SIGSTOP)
        for process in new:
            send(process, signal.SIGSTOP)
            stopped.add((process.pid, process.start))
    return processes


def _wait(target: KillTarget, until: float) -> None:
    pause = MIN_PAUSE
    while target.find() and (remaining := until - time.monotonic()) > 0:
        time.sleep(min(pause, remaining))
        pause = min(2 * pause, MAX_PAUSE)


def send(process: Process, *signals: int) -> None:
    if not process.lives:
        return
    handle = None
    with suppress(OSError):  # no file descriptor left, or an old kernel
        handle = os.pidfd_open(process.pid)
    try:
        now = read_process(process.pid)
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
    """The pids of ourselves, our ancestors, the spared processes and their descendants."""
    pids = {os.getpid(), *spare}
    pids.update(process.pid for process in below(spare, all, pids))
    pid = os.getpid()
    while (process := all.get(pid)) and process.parent not in pids:
        pid = process.parent
        pids.add(pid)
    return pids


def kill_group(group: Group, spared: set[int]) -> None:
    """Kill the whole group at once, if it contains no process to keep."""
    if group.exists() and spared.isdisjoint(group.pids()):
        group.kill()
