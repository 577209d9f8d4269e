"""The state and the pace of followed batches at a moment: what is shown of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from hypervisor.core.records import NamedTuple
from hypervisor.queue.lifecycle import OPEN
from hypervisor.queue.pause import BATCH
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from hypervisor.monitoring.progress import Counts
    from hypervisor.monitoring.status import Status
    from hypervisor.queue.context import Context


class Snapshot(NamedTuple):
    """The state and the pace of the followed batches at a moment."""

    status: Status
    counts: Counts
    now: int
    since: int | None = None  # None: no elapsed time is shown
    per_second: float | None = None
    left: int | None = None  # milliseconds
    interrupts: int = 0
    idle_since: int | None = None
    batches: Mapping[str, str] = MappingProxyType({})  # names by id
    parts: tuple[Status, ...] = ()  # of a pipeline, how each part stands
    stuck: int = 0  # waiting tasks whose dependencies did not succeed
    reduce_released: bool = True  # before it was read

    @property
    def names(self) -> Mapping[str, str]:
        """The names of batches by their ids."""
        own = [status.batch for status in (self.status, *self.parts) if status.batch]
        return {**self.batches, **{batch.id: batch.name for batch in own}}

    @property
    def continues(self) -> bool:
        return not self.interrupts and not self.status.pauses

    @property
    def open(self) -> int:
        """How many tasks may still run."""
        return open_tasks(self.status) - self.stuck

    @property
    def is_finished(self) -> bool:
        """Nothing is open, or a person has to decide first."""
        return (self.reduce_released and not self.open) or is_at_checkpoint(self.status)


def open_tasks(status: Status) -> int:
    """How many tasks have not ended."""
    return sum(status.stats.states[state] for state in OPEN)


def paused_batches(hv: Context, status: Status) -> dict[str, str]:
    """The names of the batches that are paused, by id."""
    ids = [pause.name for pause in status.pauses if pause.scope == BATCH]
    return {batch_id: hv.store.read(queries.batch, batch_id).name for batch_id in ids}


def is_at_checkpoint(status: Status) -> bool:
    moves = status.stats.claimed or status.stats.states["active"]
    return status.checkpoint is not None and not moves
