"""What a worker needs to run attempts and to keep what they print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from hypervisor.inputs.template import Item
from hypervisor.queue.attempt import Ended
from hypervisor.queue.lease import AttemptResult
from hypervisor.runs.spec import Output, Vital


class Runner(Protocol):
    """Runs the attempts of one worker, one at a time, each a tree of processes."""

    @property
    def asked(self) -> str:
        """What signals have asked of the worker so far: "", "drain" or "stop"."""
        ...

    @property
    def hopeless(self) -> str | None:
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


class Journal(Protocol):
    """Where a worker writes down what it does, for those who come after its death."""

    def starting(self, token: str) -> None: ...
    def leader(self, pid: int, start: int) -> None: ...
    def ended(self, verdict: AttemptResult) -> None: ...
    def clear(self) -> None: ...
    def remove(self) -> None: ...


class Outputs(Protocol):
    """The kept outputs of attempts."""

    def prepare(self, task: str, attempt: int) -> str:
        """Where an attempt that is about to start shall write. What was prepared before it must
        have ended."""
        ...

    def takes_long(self, task: str, attempt: int) -> None:
        """It runs for a while: from now on, what it prints can be read."""
        ...

    def ended(self, task: str, attempt: int) -> int | None:
        """Nothing of it writes any more; returns how much it printed."""
        ...

    def close(self) -> None: ...
    def recover(self, worker: str, running: tuple[str, int] | None = None) -> None:
        """Keep what the last attempt of a worker that is no more had printed."""
        ...

    def as_file(self, task: str, attempt: int) -> str:
        """The path of the whole output, for a program that wants a file."""
        ...

    def room(self) -> int:
        """How many bytes more their disk takes, which is the store's as well if that is a file."""
        ...

    def path(self, task: str, attempt: int) -> str: ...
    def size(self, task: str, attempt: int) -> int | None: ...
    def read(self, task: str, attempt: int, start: int, most: int) -> bytes: ...
    def last_line(self, task: str, attempt: int) -> str: ...
    def bound(self, task: str, attempt: int, keep: int) -> None: ...
    def all(self) -> Iterator[Output]: ...
    def free(self) -> int: ...
    def remove(self, outputs: Iterable[Output]) -> list[Output]:
        """Delete outputs; returns those that are gone."""
        ...
