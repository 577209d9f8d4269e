"""What the store says about running batches, read at most once per tick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput
from hypervisor.queue.pause import BATCH, Pause
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.queue.sql import queries
from hypervisor.runs import sql
from hypervisor.runs.spec import CommandSpec, RunSpec, spec_from

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

ACTOR = "supervisor"
UNREADABLE = RunSpec(cwd="", work=CommandSpec(()), workers=0)


class CurrentSpecs:
    def __init__(self, hv: Context) -> None:
        self._hv = hv
        self._specs: dict[str, RunSpec] = {}
        self._scaled: dict[str | None, int | None] = {}
        self._peaks: dict[str, int | None] = {}

    def refresh(self) -> None:
        """The values of the previous tick may have changed."""
        self._specs.clear()
        self._scaled.clear()
        self._peaks.clear()

    def memory_peak(self, task_type: str) -> int | None:
        if task_type not in self._peaks:
            self._peaks[task_type] = self._hv.store.read(sql.memory_peak, task_type)
        return self._peaks[task_type]

    def scaled_workers(self, batch: str | None) -> int | None:
        if batch not in self._scaled:
            self._scaled[batch] = self._hv.store.read(sql.scaled_workers, batch)
        return self._scaled[batch]

    def spec(self, batch: str) -> RunSpec:
        if batch not in self._specs:
            try:
                self._specs[batch] = spec_from(self._hv.store.read(queries.batch, batch).spec)
            except InvalidInput as error:  # one batch of another version must not stop the others
                pause = Pause(BATCH, batch, str(error), ACTOR, 0)
                self._hv.store.write(pauses_sql.pause, pause, self._hv.now())
                self._specs[batch] = UNREADABLE
        return self._specs[batch]

    def requested_workers(self, batch: str) -> int | None:
        """The number of workers set by `hv scale`, else by the run spec."""
        scaled = self.scaled_workers(batch)
        return self.spec(batch).workers if scaled is None else scaled
