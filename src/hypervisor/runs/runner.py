"""The interface between a worker and what runs its attempts: commands, functions or agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from hypervisor.inputs.template import Item
from hypervisor.queue.attempt import Ended
from hypervisor.runs.spec import TreeUsage


class Runner(Protocol):
    """Runs the attempts of one worker, one at a time, each a tree of processes."""

    @property
    def asked(self) -> str:
        """What the signals so far ask of the worker: "", "drain" or "stop"."""
        ...

    @property
    def fatal_error(self) -> str | None:
        """Why no attempt of this batch can succeed; None if one may."""
        ...

    @property
    def leader(self) -> int:
        """The pid of the attempt's first process, or 0."""
        ...

    def work_in(self, folder: str, env: Mapping[str, str], root: str = "") -> None:
        """Where the next attempts run, with which variables in addition. `root` is the folder
        that they may change, if it is not that one."""
        ...

    def evidence(self) -> tuple[str, ...]:
        """How the attempt that has just ended was confined, as lines for receipts."""
        ...

    def start(self, item: Item, token: str, output: str) -> None:
        """Start an attempt. OSError: this host cannot start anything just now."""
        ...

    def wait(self, seconds: float) -> Ended | None:
        """How the attempt ended; None if it is still running or a signal arrived."""
        ...

    def stop(self, grace: float) -> Ended:
        """End the attempt's whole process tree: SIGTERM, then SIGKILL after `grace` seconds."""
        ...

    def clear(self, grace: float) -> int:
        """Stop the processes that an ended attempt left running; returns how many."""
        ...

    def vital(self) -> TreeUsage:
        """The current usage of the process tree."""
        ...

    def exact_memory(self) -> int:
        """The tree's memory with shared pages counted once. Costly."""
        ...

    def settle_in(self) -> None:
        """Set up what only pays off for a long attempt."""
        ...

    def pause(self, seconds: float) -> None:
        """Wait while nothing runs; a signal ends the wait."""
        ...

    def close(self) -> None: ...
