"""Keeping the counts of tasks up to date, so that a reader has few events to add up."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError
from hypervisor.core.records import NamedTuple
from hypervisor.queue import lifecycle
from hypervisor.queue.sql import counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypervisor.queue.context import Context

PAUSE_MS = 1_000
ENOUGH = 1_000  # events: adding up fewer takes a reader a few milliseconds
TOO_MANY = 20_000  # a reader moves them into the counts itself: no supervisor does


class BatchCounts(NamedTuple):
    """How many tasks of a batch are in each state."""

    batch: str
    states: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.states.values())

    @property
    def ended(self) -> int:
        return sum(self.states.get(state, 0) for state in lifecycle.TERMINAL)


class CountKeeper:
    """The supervisor's part. It writes nothing while little happens."""

    def __init__(self, hv: Context) -> None:
        self._hv = hv
        self._looked_at: int | None = None

    def tick(self, now: int) -> None:
        if self._looked_at is not None and 0 <= now - self._looked_at < PAUSE_MS:
            return
        self._looked_at = now
        if self._hv.store.read(counts.uncounted) >= ENOUGH:
            self._hv.store.write_unsynced(counts.fold)

    def last_look(self) -> None:
        with suppress(StoreError):
            self._looked_at = None
            self.tick(self._hv.now())


def keep_short(hv: Context) -> None:
    """Before a look at the counts: move the events into them if there are very many."""
    if hv.store.read(counts.uncounted) >= TOO_MANY:
        with suppress(StoreError):  # a store that can only be read: the look takes longer
            hv.store.write_unsynced(counts.fold)


def batch_counts(hv: Context, batches: Sequence[str]) -> dict[str, BatchCounts]:
    """Count the tasks of batches, by their ids and states."""
    keep_short(hv)
    by_batch: dict[str, dict[str, int]] = {batch: {} for batch in batches}
    if batches:
        for (batch, _, state), tasks in hv.store.read(counts.counts, batches).items():
            by_batch[batch][state] = by_batch[batch].get(state, 0) + tasks
    return {batch: BatchCounts(batch, states) for batch, states in by_batch.items()}
