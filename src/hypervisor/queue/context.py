"""What every operation works with: the open store, this host, and who is asking."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from hypervisor.core import validate
from hypervisor.core.errors import NotFound
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from hypervisor.ports import (
        AgentAdapter,
        AgentHomes,
        BatchFiles,
        Courier,
        HostProbe,
        Launcher,
        Outputs,
        TaskFiles,
    )
    from hypervisor.queue.lease import Worker
    from hypervisor.runs.config import Settings
    from hypervisor.store.database import Database


class Equipment(NamedTuple):
    """What it takes to run work on this host, beyond keeping the ledger."""

    launcher: Launcher
    outputs: Outputs
    settings: Settings
    batch_files: BatchFiles | None = None
    task_files: TaskFiles | None = None
    agents: Callable[[], AgentAdapter] | None = None
    courier: Courier | None = None
    secret: Callable[[str], tuple[str, str]] | None = None  # path and content, by file name
    homes: AgentHomes | None = None


class NoStore:
    """Stands where a store would be made; whoever asks it anything is told that there is none."""

    def __init__(self, where: str) -> None:
        self.where = where

    def close(self) -> None:
        """There is nothing to close."""

    def __getattr__(self, name: str) -> Any:
        raise NotFound(f"there is no store at {self.where}. `hv run` or `hv add` makes one.")


class Context:
    """An open ledger. Operations take it first, so they double as methods of `Hypervisor`."""

    def __init__(
        self,
        store: Database,
        probe: HostProbe,
        actor: str,
        pid: int = 0,
        equip: Callable[[], Equipment] | None = None,
    ) -> None:
        self.store = store
        self.probe = probe
        self.actor = actor
        self.pid = pid  # the process that claims belong to unless a claim names another
        self.swept_at = 0
        self.batch_ids: dict[str, str] = {}
        self.workers: dict[tuple[str, int], Worker] = {}
        self.equip = equip
        # Be the supervisor in this process; what it is given is called every tick.
        self.serve: Callable[[Callable[[str], None]], int] | None = None
        self._equipment: Equipment | None = None
        self._agents: AgentAdapter | None = None

    def now(self) -> int:
        """The time by the clock that all users of the store share, in milliseconds."""
        return self.store.now()

    def at(self, now: int | None) -> int:
        """The time that is passed in, else the time by that clock."""
        return self.store.now() if now is None else now

    def resolve(self, task: str) -> str:
        """The whole id of the task that an id or a unique beginning of one means."""
        return self.store.read(queries.resolve, task)

    @property
    def has_store(self) -> bool:
        """False for a look at this host before anything was ever run."""
        return not isinstance(self.store, NoStore)

    @property
    def is_equipped(self) -> bool:
        return self.equip is not None

    @property
    def equipment(self) -> Equipment:
        """Put together when first needed: most commands can do without."""
        if self._equipment is None:
            assert self.equip is not None, "this context was made for the ledger alone"
            self._equipment = self.equip()
        return self._equipment

    @property
    def launcher(self) -> Launcher:
        return self.equipment.launcher

    @property
    def outputs(self) -> Outputs:
        return self.equipment.outputs

    @property
    def settings(self) -> Settings:
        return self.equipment.settings

    @property
    def batch_files(self) -> BatchFiles:
        found = self.equipment.batch_files
        assert found is not None, "this context was made without a place for batches"
        return found

    @property
    def agent_programs(self) -> AgentAdapter:
        """Put together when first needed, as the rest of the equipment."""
        if self._agents is None:
            assert self.equipment.agents is not None, "this context was made without agents"
            self._agents = self.equipment.agents()
        return self._agents

    def close(self) -> None:
        self.store.close()


def batch_id(hv: Context, text: str | None) -> str | None:
    """The id of the batch that is meant, None for any. A batch keeps its id for ever: a
    worker that asks for it a thousand times looks once."""
    if text is None:
        return None
    if text not in hv.batch_ids:
        hv.batch_ids[text] = hv.store.read(queries.batch, validate.text("the batch", text)).id
    return hv.batch_ids[text]
