"""This host and its processes, read from /proc.

A pid alone proves nothing: it may have been reused, or belong to another
container. Identity is pid + start time, within one boot and one process
namespace.
"""

from __future__ import annotations

import os
from contextlib import suppress

from hypervisor.queue.lease import Worker

DEAD_STATES = "ZXx"  # a zombie has ended; only its exit code has not been collected


class LocalHost:
    def __init__(self) -> None:
        self._boot: str | None = None

    def host(self) -> str:
        return os.uname().nodename or "localhost"

    def boot(self) -> str:
        if self._boot is None:
            self._boot = _boot()
        return self._boot

    def process_start(self, pid: int) -> int | None:
        """None if the process has ended."""
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                after_name = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # A process lives on in other threads after its main thread has ended.
        dead = after_name[0].decode() in DEAD_STATES and int(after_name[17]) <= 1
        return None if dead else int(after_name[19])

    def is_gone(self, worker: Worker) -> bool | None:
        if worker.pid <= 0 or not worker.boot or worker.boot != self.boot():
            return None
        start = self.process_start(worker.pid)
        if start is None and _is_hidden(worker.pid):
            return None
        return start != worker.pid_start


def _boot() -> str:
    with suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    with open("/proc/stat", encoding="ascii") as file:
        started = next((line.split()[1] for line in file if line.startswith("btime ")), "")
    return f"{os.uname().nodename}/{started}"


def _is_hidden(pid: int) -> bool:
    """Whether it is another user's live process, which /proc does not show us (hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return False
