"""What a worker needs of whatever runs its attempts: commands, functions or agents."""

from __future__ import annotations

from typing import Protocol

from hypervisor.inputs.template import Item
from hypervisor.queue.attempt import Ended
from hypervisor.runs.spec import Vital


class Runner(Protocol):
    """Runs the attempts of one worker, one at a time, each a tree of processes."""

    @property
    def asked(self) -> str:
        """What signals have asked of the worker so far: "", "drain" or "stop"."""
        ...

    @property
    def fatal_error(self) -> str | None:
        """Why no attempt of this batch can succeed, None while there is hope."""
        ...

    @property
    def leader(self) -> int:
        """The pid of the attempt's first process, 0 if there is none."""
        ...

    def start(self, item: Item, token: str, output: str) -> None:
        """Start an attempt. OSError: this host cannot start anything just now."""
        ...

    def wait(self, seconds: float) -> Ended | None:
        """How the attempt ended, None if it still runs after so long or a signal came."""
        ...

    def stop(self, grace: float) -> Ended:
        """End the attempt's whole tree, gently and then for certain."""
        ...

    def clear(self, grace: float) -> int:
        """After an end: stop whatever the attempt left running. Returns how many there were."""
        ...

    def vital(self) -> Vital:
        """How the tree is doing right now."""
        ...

    def exact_memory(self) -> int:
        """The tree's memory with shared pages counted once. Costly."""
        ...

    def settle_in(self) -> None:
        """What is worth doing only for an attempt that lasts."""
        ...

    def pause(self, seconds: float) -> None:
        """Nothing runs: wait, but wake up for a signal."""
        ...

    def close(self) -> None: ...
