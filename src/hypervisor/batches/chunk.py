"""Chunks: reviewable slices of a batch, and the checkpoints between them.

A chunk is `held` until it may run, `open` while it runs or waits for a decision,
then `approved` or `rejected`; without a checkpoint it is `free` all along. Whether
it has ended is not stored: it has when all of its tasks have ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.queue.lifecycle import UNFINISHED

if TYPE_CHECKING:
    from hypervisor.runs.spec import Gate


class ChunkState(StrEnum):
    HELD = "held"
    OPEN = "open"
    FREE = "free"
    APPROVED = "approved"
    REJECTED = "rejected"


HELD, OPEN, FREE, APPROVED, REJECTED = ChunkState
SPANS = ("day", "week", "month")
UNDATED = "undated"


class Chunk(NamedTuple):
    """A chunk with the number of its tasks in each state."""

    batch: str
    number: int
    name: str
    state: ChunkState
    note: str | None
    actor: str | None
    decided_at: int | None
    tasks: dict[str, int]

    @property
    def label(self) -> str:
        """Its name for people; a bare number gets a word in front."""
        named = f" ({self.name})" if self.name != str(self.number) else ""
        return f"chunk {self.number}{named}"

    @property
    def total(self) -> int:
        return sum(self.tasks.values())

    @property
    def unfinished(self) -> int:
        return sum(self.tasks.get(state, 0) for state in UNFINISHED)

    @property
    def is_decided(self) -> bool:
        return self.state in (APPROVED, REJECTED)

    @property
    def awaits_decision(self) -> bool:
        return self.state == OPEN and not self.unfinished and bool(self.tasks)


def first_state(gate: Gate, before: Iterable[str], is_last: bool) -> ChunkState:
    """Whether a new chunk may run at once, given the states of those before it. With the gate
    `first`, a single chunk needs no decision: there is nothing to hold. If more are added later,
    the first of them needs one."""
    states = set(before)
    if gate == "none" or (gate == "first" and states & {APPROVED, REJECTED}):
        return FREE
    if states & {OPEN, HELD}:
        return HELD
    return FREE if gate == "first" and is_last and not states else OPEN


def span_name(span: str, when: str | None) -> str:
    """The name of the chunk for an ISO date, by day, week or month."""
    if span not in SPANS:
        raise InvalidInput(f"unknown kind of chunk {span!r}: use one of {', '.join(SPANS)}.")
    try:
        day = date.fromisoformat((when or "")[:10])
    except ValueError:
        return UNDATED
    if span == "day":
        return day.isoformat()
    if span == "month":
        return f"{day.year:04}-{day.month:02}"
    year, week, _ = day.isocalendar()
    return f"{year:04}-W{week:02}"


def file_stem(number: int) -> str:
    """The common part of a chunk's file names, as in chunk-01-summary.json."""
    return f"chunk-{number:02}"
