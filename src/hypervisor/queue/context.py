"""What every operation works with: the open store, this host, and who is asking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypervisor.core import validate
from hypervisor.core.errors import NotFound
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypervisor.agents.homes import AgentHomes
    from hypervisor.agents.programs import LocalAgents
    from hypervisor.agents.session import AgentSession
    from hypervisor.batches.files import BatchFiles
    from hypervisor.inputs.task_files.files import TaskFiles
    from hypervisor.notifications.delivery import Courier
    from hypervisor.queue.lease import Worker
    from hypervisor.resources.host import LocalHost
    from hypervisor.runs.config import Settings
    from hypervisor.runs.outputs.files import Outputs
    from hypervisor.runs.processes.launcher import LocalLauncher
    from hypervisor.runs.supervisor import Supervisor
    from hypervisor.store.database import Database


class NoStore:
    """Stands where a store would be made; whoever asks it anything is told that there is none."""

    def __init__(self, where: str) -> None:
        self.where = where

    def close(self) -> None:
        """There is nothing to close."""

    def __getattr__(self, name: str) -> Any:
        raise NotFound(f"there is no store at {self.where}. `hv run` or `hv add` makes one.")


class Context:
    """An open store. Operations take it first, so they double as methods of `Hypervisor`.

    The rooms above bring their own parts, named here. `app.Parts` makes each when it is first
    used: most commands need none."""

    settings: Settings
    outputs: Outputs
    launcher: LocalLauncher
    task_files: TaskFiles
    batch_files: BatchFiles
    homes: AgentHomes
    agent_programs: LocalAgents
    clean_up_agent: Callable[[Worker, AgentSession], None]  # that died with its worker
    courier: Courier
    secret: Callable[[str], tuple[str, str]]  # path and content, by file name
    make_supervisor: Callable[[int | None], Supervisor]  # by how long it stays idle, in ms

    def __init__(
        self, store: Database, probe: LocalHost, actor: str, pid: int = 0, parts: object = None
    ) -> None:
        self.store = store
        self.probe = probe
        self.actor = actor
        self.pid = pid  # the process that claims belong to unless a claim names another
        self.parts = parts
        self.swept_at = 0
        self.batch_ids: dict[str, str] = {}
        self.workers: dict[tuple[str, int], Worker] = {}

    if not TYPE_CHECKING:  # a type checker goes by the names above

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name not in Context.__annotations__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(self.parts, name)

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
        """False for a context that was made for the store alone."""
        return self.parts is not None

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
