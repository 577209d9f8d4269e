"""The host: its processes, and those that the program starts on it."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Any, Protocol

from hypervisor.agents.profile import AgentProfile
from hypervisor.queue.lease import Worker
from hypervisor.runs.spec import Leftovers


class HostProbe(Protocol):
    """This host and its processes."""

    def host(self) -> str:
        """The host's name, for people."""
        ...

    def boot(self) -> str:
        """Names this boot and process namespace: pids are only comparable within one."""
        ...

    def process_start(self, pid: int) -> int | None:
        """When that process started (in any steady unit), None if there is none alive."""
        ...

    def is_gone(self, worker: Worker) -> bool | None:
        """True if the worker's process is proven gone, False if it lives, None if unknown."""
        ...


class Launcher(Protocol):
    """Starts supervisors and workers on this host, and deals with what dead ones left."""

    def supervisor(self) -> int | None:
        """The pid of this store's supervisor here, 0 while it comes up, None if there is none."""
        ...

    def start_supervisor(self) -> None:
        """Start one in the background. If another is quicker, that one stays; one that was asked
        to end is waited for."""
        ...

    def is_leaving(self) -> bool:
        """Whether the supervisor was asked to end, and so starts nothing more."""
        ...

    def start_worker(self, batch: str, agent: str = "") -> int: ...
    def account(self, batch: str, profile: AgentProfile) -> str:
        """What the limits of an agent belong to, in the environment that the batch was given."""
        ...

    def start_notifier(self) -> None:
        """Start, in the background, a process that delivers notices; none if there is one."""
        ...

    def acquire_notifier_lock(self) -> int | None:
        """Become the one who delivers notices of this store here. None if there is one."""
        ...

    def submitting(self) -> AbstractContextManager[None]:
        """While a run is being added: no supervisor leaves, and no environment is removed."""
        ...

    def keep_environment(self, batch: str) -> bool:
        """Hand our environment to the workers of a batch, without it reaching the disk. False if
        that cannot be done here: then they get their supervisor's."""
        ...

    def forget_environment(self, batch: str) -> None: ...
    def remains(self, worker: Worker) -> Leftovers | None:
        """What a dead worker left behind, None if it left no word."""
        ...

    def end_leftovers(
        self, worker: Worker, remains: Leftovers | None, held: Collection[str]
    ) -> int | None:
        """End the processes that a dead worker left running. `held` are the attempts it may have
        been at (TASK.NUMBER), for when it left no word. Returns how many there were, None if one
        of them cannot be ended."""
        ...

    def scrub_home(self, worker: Worker, batch: str, task: str, profile: AgentProfile) -> None:
        """Take the secrets of a run out of the home of an agent that died with its worker. The
        home of one that claimed by itself, which has no task, is removed."""
        ...

    def forget_leftovers(self, worker: Worker, remains: Leftovers) -> None: ...
    def signal(self, worker: Worker, what: str) -> None:
        """Ask a worker to "drain" (finish what it runs, then end) or to "stop" at once."""
        ...

    def reap(self) -> list[tuple[int, int]]:
        """Our own workers that have ended since: pid and exit code (negative: a signal)."""
        ...

    def read_status(self) -> dict[str, Any] | None:
        """What the supervisor last thought of this host, None if there is no word."""
        ...

    def publish_status(self, status: dict[str, Any]) -> None:
        """Leave word of what the supervisor thinks of this host."""
        ...

    def memory(self, workers: Collection[int]) -> dict[int, int]:
        """How much memory these workers' trees use now, in bytes by pid."""
        ...
