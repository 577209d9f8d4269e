"""Tasks, batches and attempts as callers see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from hypervisor.core.records import NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

    from hypervisor.queue.lane import Priority

Json = Any
State = Literal[
    "inbox",
    "waiting",
    "active",
    "in_progress",
    "merging",
    "review",
    "blocked",
    "done",
    "failed",
    "cancelled",
]
MessageKind = Literal["answer", "note"]
Outcome = Literal["done", "failed", "blocked", "released", "crashed", "cancelled"]


class NewTask(NamedTuple):
    """A task to add; everything but the title has a default."""

    title: str
    body: str = ""
    type: str = "task"
    priority: Priority = "medium"
    key: str | None = None
    branch: str = ""
    assignee: str = ""
    requires: tuple[str, ...] = ()
    exclusive: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    start_at: int | datetime | None = None
    retries: int = 0
    data: Json = None
    inbox: bool = False
    chunk: int = 0  # the number of its chunk in the batch; 0: none


class TaskFields(TypedDict, total=False):
    """The fields of a NewTask but its title, as keywords of `add`."""

    body: str
    type: str
    priority: Priority
    key: str | None
    branch: str
    assignee: str
    requires: tuple[str, ...]
    exclusive: tuple[str, ...]
    after: tuple[str, ...]
    start_at: int | datetime | None
    retries: int
    data: Json
    inbox: bool
    chunk: int


class Task(NamedTuple):
    """A task in its current state; times are milliseconds since 1970."""

    id: str
    title: str
    state: State
    type: str
    priority: str
    batch: str
    branch: str
    assignee: str
    requires: tuple[str, ...]
    key: str | None
    body: str
    data: Json
    start_at: int | None
    retries: int
    attempts: int
    failures: int
    crashes: int
    open_dependencies: int
    lease_until: int | None
    result: Json
    reason: str | None
    unblock: str | None
    created_at: int
    updated_at: int


class Attempt(NamedTuple):
    """One try at a task; `outcome` is None while it runs."""

    number: int
    worker: str
    claimed_at: int
    ended_at: int | None
    outcome: Outcome | None
    reason: str | None
    exit_code: int | None = None
    cpu_ms: int | None = None
    peak_kb: int | None = None
    output_bytes: int | None = None


class TaskDetail(NamedTuple):
    """A task with its exclusive keys, dependencies and attempts."""

    task: Task
    exclusive: tuple[str, ...]
    after: tuple[str, ...]
    waits_for: tuple[str, ...]
    attempts: tuple[Attempt, ...]


class Message(NamedTuple):
    """An answer to a blocked task, or a note to one that runs or will run. `attempt` is the one
    that was given it, None until then; `asked` is what the task was blocked for."""

    id: str
    task: str
    kind: MessageKind
    text: str
    asked: str
    actor: str
    at: int
    attempt: int | None = None


class Duplicate(NamedTuple):
    """A task that was not added because its key already exists."""

    key: str
    task: str
    state: str


class Added(NamedTuple):
    """The tasks that `add` added, and those it did not."""

    ids: tuple[str, ...]
    duplicates: tuple[Duplicate, ...]

    @property
    def id(self) -> str:
        """The id of a single task: the one that was added, or the one that already has its key."""
        ids = (*self.ids, *(duplicate.task for duplicate in self.duplicates))
        if len(ids) != 1:
            raise ValueError(f"{len(ids)} tasks were given; use ids and duplicates")
        return ids[0]


class Batch(NamedTuple):
    """Tasks submitted together; `spec` says how they are run, None if they are only queued."""

    id: str
    name: str
    created_at: int
    spec: Json = None
    archived_at: int | None = None  # since when lists leave it out
    deleting: bool = False  # its deletion has begun


class Changes(NamedTuple):
    """What `update` changes; None leaves a field as it is."""

    title: str | None = None
    body: str | None = None
    type: str | None = None
    priority: Priority | None = None
    branch: str | None = None
    assignee: str | None = None
    requires: tuple[str, ...] | None = None
    after: tuple[str, ...] | None = None
    start_at: int | datetime | None = None
    retries: int | None = None
    data: Json = None


class Delay(NamedTuple):
    """Tasks that only wait for their start time."""

    failed_before: bool
    tasks: int
    first_at: int
    last_at: int


class TaskFilter(NamedTuple):
    """Which tasks to list; empty fields match everything."""

    states: tuple[str, ...] = ()
    batch: str | None = None
    type: str | None = None
    branch: str | None = None
    priority: str | None = None
    assignee: str | None = None
    text: str | None = None
    archived: bool = False  # tasks of archived batches, too


class Stats(NamedTuple):
    """Counts by state and the pace of the last minutes."""

    total: int
    states: dict[str, int]
    types: dict[str, dict[str, int]]
    remaining: int
    claimed: int
    completed_per_minute: float
    failed_per_minute: float
    window_seconds: int
