"""Tasks, batches and attempts as callers see them."""

from typing import Any, NamedTuple

Json = Any


class NewTask(NamedTuple):
    """What a caller asks for; everything but the title has a default."""

    title: str
    body: str = ""
    type: str = "task"
    priority: str = "medium"
    key: str | None = None
    branch: str = ""
    assignee: str = ""
    requires: tuple[str, ...] = ()
    exclusive: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    start_at: int | None = None
    retries: int = 0
    data: Json = None
    inbox: bool = False
    chunk: int = 0  # the number of its chunk in the batch; 0: none


class Task(NamedTuple):
    """One task as it stands; times are milliseconds since 1970."""

    id: str
    title: str
    state: str
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
    outcome: str | None
    reason: str | None
    exit_code: int | None = None
    cpu_ms: int | None = None
    peak_kb: int | None = None
    output_bytes: int | None = None


class TaskDetail(NamedTuple):
    """A task with all that hangs on it."""

    task: Task
    exclusive: tuple[str, ...]
    after: tuple[str, ...]
    waits_for: tuple[str, ...]
    attempts: tuple[Attempt, ...]


class Duplicate(NamedTuple):
    """A task that was not added because its key is already there."""

    key: str
    task: str
    state: str


class Added(NamedTuple):
    """What `add` did."""

    ids: tuple[str, ...]
    duplicates: tuple[Duplicate, ...]


class Batch(NamedTuple):
    """Tasks submitted together; `spec` says how they are run, None if nothing runs them."""

    id: str
    name: str
    created_at: int
    spec: Json = None


class Changes(NamedTuple):
    """What `update` shall change; None leaves a field as it is."""

    title: str | None = None
    body: str | None = None
    type: str | None = None
    priority: str | None = None
    branch: str | None = None
    assignee: str | None = None
    requires: tuple[str, ...] | None = None
    after: tuple[str, ...] | None = None
    start_at: int | None = None
    retries: int | None = None
    data: Json = None


class TaskFilter(NamedTuple):
    """Which tasks to list; empty fields match everything."""

    states: tuple[str, ...] = ()
    batch: str | None = None
    type: str | None = None
    branch: str | None = None
    priority: str | None = None
    assignee: str | None = None
    text: str | None = None


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
