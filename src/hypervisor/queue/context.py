"""The context of every operation: the open store, this host and the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypervisor.core import validate
from hypervisor.core.errors import NotFound
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hypervisor.agents.agent_settings import AgentSettings
    from hypervisor.agents.homes import AgentHomes
    from hypervisor.agents.programs import LocalAgents
    from hypervisor.batches.files import BatchFiles
    from hypervisor.core.places import Places
    from hypervisor.inputs.task_files.files import TaskFiles
    from hypervisor.notifications.delivery import NoticeSender
    from hypervisor.queue.agent_session import AgentSession
    from hypervisor.queue.lease import Worker
    from hypervisor.queue.task import NewTask
    from hypervisor.resources.host import LocalHost
    from hypervisor.runs.config import Settings
    from hypervisor.runs.outputs.files import Outputs
    from hypervisor.runs.processes.launcher import LocalLauncher
    from hypervisor.runs.spec import RunSpec
    from hypervisor.runs.supervisor import Supervisor
    from hypervisor.runs.worker import WorkerContext
    from hypervisor.runs.workspaces import Workspaces
    from hypervisor.store.database import Database


class NoStore:
    """Stands in for a store that does not exist yet; every use raises NotFound."""

    def __init__(self, where: str) -> None:
        self.where = where

    def close(self) -> None:
        """There is nothing to close."""

    def __getattr__(self, name: str) -> Any:
        raise NotFound(f"no store at {self.where}. Create one with `hv add` or `hv run`.")


class Context:
    """An open store. Operations take it first, so they double as methods of `Hypervisor`.

    The attributes below belong to the rooms above. `app.Parts` makes each on first use: most
    commands need none."""

    places: Places
    settings: Settings
    agent_settings: AgentSettings
    outputs: Outputs
    launcher: LocalLauncher
    task_files: TaskFiles
    write_back: Callable[..., int]  # into the files of tasks: batches.write_back
    batch_files: BatchFiles
    homes: AgentHomes
    agent_programs: LocalAgents
    assign_agents: Callable[
        [Context, RunSpec, Iterable[NewTask]], tuple[RunSpec, Iterable[NewTask]]
    ]
    clean_up_agent: Callable[[Worker, AgentSession], None]  # that died with its worker
    courier: NoticeSender
    secret: Callable[[str], tuple[str, str]]  # path and content, by file name
    make_workspaces: Callable[[WorkerContext], Workspaces]  # for the attempts of a worker
    # when a batch is submitted, with its items
    prepare_workspaces: Callable[[RunSpec, Iterable[str]], RunSpec]
    # why clones of a repository of another host cannot be made here yet; None: it is not elsewhere
    repository_problem: Callable[[RunSpec], str | None]
    make_supervisor: Callable[[int | None], Supervisor]  # by how long it stays idle, in ms
    open_store: Callable[..., Context]  # another one, by its URL; in another process, too

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
        """`now` if it is given, otherwise the store's time."""
        return self.store.now() if now is None else now

    def tasks_changed(
        self, tasks: Sequence[str], *, spec: RunSpec | None = None, ended: bool = False
    ) -> None:
        """Update the files of these tasks. `spec`: that of their batch, if known; `ended`: an
        attempt has just ended, so the edits in its result are due."""
        if self.is_equipped:
            self.write_back(self, tasks, spec, edits=ended)

    def resolve(self, task: str) -> str:
        """The full id of the task with this id, or with a unique part of it."""
        return self.store.read(queries.resolve, task)

    @property
    def has_store(self) -> bool:
        """False if the store does not exist yet."""
        return not isinstance(self.store, NoStore)

    @property
    def is_equipped(self) -> bool:
        """Whether it has the parts of all rooms, not only a store."""
        return self.parts is not None

    def close(self) -> None:
        self.store.close()


def batch_id(hv: Context, text: str | None) -> str | None:
    """The id of a batch, None for any."""
    if text is None:
        return None
    return hv.store.read(queries.batch, validate.text("the batch", text)).id


def remembered_batch_id(hv: Context, text: str | None) -> str | None:
    """The same for a worker that asks a thousand times: it looks again once there was nothing to
    claim, as the batch may have been deleted and made again."""
    if text is not None and text not in hv.batch_ids:
        hv.batch_ids[text] = batch_id(hv, text) or ""
    return None if text is None else hv.batch_ids[text]
