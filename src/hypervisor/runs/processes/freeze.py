"""Pausing and killing the processes below this one, from any of its threads.

Nothing is collected here: the thread that started a process waits for it.
"""

from __future__ import annotations

import os
import signal
import time

from hypervisor.resources.process_table import Process, descendants, snapshot
from hypervisor.runs.processes.kill import send

STOPPED = "Tt"
MAX_LOOKS = 20  # a process may fork while it is being stopped
PATIENCE = 2.0  # seconds for killed processes to exit

Frozen = set[tuple[int, int]]  # pid and start


def freeze() -> Frozen:
    """Pause all processes below this one; returns those that were running."""
    frozen: Frozen = set()
    for _ in range(MAX_LOOKS):
        running = [
            process
            for process in _below()
            if process.state not in STOPPED and (process.pid, process.start) not in frozen
        ]
        if not running:
            break
        for process in running:
            send(process, signal.SIGSTOP)
            frozen.add((process.pid, process.start))
    return frozen


def thaw(frozen: Frozen) -> None:
    for process in _below():
        if (process.pid, process.start) in frozen:
            send(process, signal.SIGCONT)


def kill() -> None:
    """Kill all processes below this one. Those that are stuck in the kernel are left."""
    freeze()
    until = time.monotonic() + PATIENCE
    while processes := _below():
        for process in processes:
            send(process, signal.SIGKILL)
        if time.monotonic() > until:
            break
        time.sleep(0.005)


def _below() -> list[Process]:
    return [p for p in descendants(os.getpid(), snapshot(), ()) if p.lives]
