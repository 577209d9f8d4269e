"""What the queue benchmark asks of a system, and how a race over one is put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol


class Queue(Protocol):
    """One process's end of a queue of numbers."""

    def put(self, items: Sequence[int]) -> None:
        """Add items, one or `k` at a time as the system is set up."""
        ...

    def drain(self) -> list[int]:
        """Claim and complete until nothing is left; returns what was completed."""
        ...

    def close(self) -> None: ...


class System(Protocol):
    """A way to queue; picklable, so that it can be sent to the processes."""

    @property
    def name(self) -> str: ...

    @property
    def group(self) -> str:
        """durable, relaxed, none or postgres: only systems of one group are compared."""
        ...

    @property
    def pace(self) -> float:
        """How many times the basic number of items makes a measurement long enough."""
        ...

    def create(self, where: str) -> None:
        """Make an empty queue (a folder or the URL of an empty database)."""
        ...

    def open(self, where: str, seat: int) -> Queue: ...


class Putting(NamedTuple):
    """Every process adds its share."""

    system: System
    where: str
    items: int

    def ready(self, seat: int, of: int) -> tuple[Callable[[], Any], Callable[[], None]]:
        queue = self.system.open(self.where, seat)
        share = range(seat, self.items, of)
        return lambda: queue.put(share), queue.close


class Draining(NamedTuple):
    """Every process takes what it can get."""

    system: System
    where: str

    def ready(self, seat: int, of: int) -> tuple[Callable[[], Any], Callable[[], None]]:
        queue = self.system.open(self.where, seat)
        return queue.drain, queue.close


def groups(items: Sequence[int], size: int) -> list[Sequence[int]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
