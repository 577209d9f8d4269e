"""How batches are to be run, as it is written now: each is looked up once a tick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput
from hypervisor.queue.sql import queries
from hypervisor.runs import sql
from hypervisor.runs.spec import BATCH, Pause, RunSpec, spec_from
from hypervisor.store import settings

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

ACTOR = "supervisor"


class CurrentSpecs:
    def __init__(self, hv: Context) -> None:
        self._hv = hv
        self._specs: dict[str, RunSpec] = {}
        self._settings: dict[str, str | None] = {}

    def refresh(self) -> None:
        """Somebody may have changed what was looked up in the tick before."""
        self._specs.clear()
        self._settings.clear()

    def setting(self, name: str) -> str | None:
        if name not in self._settings:
            self._settings[name] = self._hv.store.read(settings.setting, name)
        return self._settings[name]

    def spec(self, batch: str) -> RunSpec:
        if batch not in self._specs:
            try:
                self._specs[batch] = spec_from(self._hv.store.read(queries.batch, batch).spec)
            except InvalidInput as error:  # one batch of another version must not stop the others
                pause = Pause(BATCH, batch, str(error), ACTOR, 0)
                self._hv.store.write(sql.pause, pause, self._hv.now())
                self._specs[batch] = RunSpec(cwd="", workers=0)
        return self._specs[batch]

    def requested_workers(self, batch: str) -> int | None:
        """How many workers were asked for, lately or when the batch was declared."""
        scaled = self.setting(f"workers {batch}")
        return self.spec(batch).workers if scaled is None else int(scaled)
