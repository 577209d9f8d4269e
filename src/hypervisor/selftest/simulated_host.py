"""A host whose processes and clocks are simulated."""

from __future__ import annotations

from hypervisor.queue.lease import Worker

START = 1_800_000_000_000  # milliseconds since 1970


class SimulatedHost:
    """Stands in for `resources.host.LocalHost`."""

    def __init__(self) -> None:
        self.boots = 1
        self.uptime = 1_000_000  # ms; nothing sets it back
        self.wall_offset = START  # ms; a person or NTP may set it
        self._living: dict[int, int] = {}  # start times by pid
        self._next = 100

    def start_process(self) -> int:
        self._next += 1
        self._living[self._next] = self.uptime
        return self._next

    def end_process(self, pid: int) -> None:
        self._living.pop(pid, None)

    def reboot(self) -> None:
        self._living.clear()
        self.boots += 1
        self.uptime += 60_000

    # As a host

    def host(self) -> str:
        return "simulated"

    def process_start(self, pid: int) -> int | None:
        return self._living.get(pid)

    def is_gone(self, worker: Worker) -> bool | None:
        if worker.pid <= 0 or worker.boot != f"boot{self.boots}":
            return None
        return self._living.get(worker.pid) != worker.pid_start

    def boot(self) -> str:
        return f"boot{self.boots}"


class SimulatedClocks:
    """Stands in for `store.clock.HostClocks`."""

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host

    def wall(self) -> int:
        return self._host.wall_offset + self._host.uptime

    def steady(self) -> int:
        return self._host.uptime

    def boot(self) -> tuple[str, str]:
        return self._host.boot(), "simulated"
