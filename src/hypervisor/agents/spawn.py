"""Spawns tasks that run in parallel, without waiting for them.

Everything is stored before the call returns, and a supervisor that outlives the caller runs it. A
`reduce` task waits for all the others, as in every pipeline; if some of them fail, the caller
decides whether to run it without them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from hypervisor.batches.pipeline_names import REDUCE
from hypervisor.batches.reduce_input import REDUCES, mention, results_path
from hypervisor.batches.sql import pipelines
from hypervisor.batches.submit import submit
from hypervisor.batches.wait import start_cursor
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.items import occurrences, task_for
from hypervisor.inputs.template import Item
from hypervisor.learning.sql import prior_of
from hypervisor.queue.add import add, checked_task
from hypervisor.queue.context import Context
from hypervisor.queue.sql import insert, queries
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.queue.task import Json, NewTask, TaskFilter
from hypervisor.resources.limits import Limits
from hypervisor.runs.check_spec import check_spec
from hypervisor.runs.spec import (
    STRATEGIES,
    AgentSpec,
    CommandSpec,
    FunctionSpec,
    GitSpec,
    Permissions,
    RunSpec,
    Strategy,
    WorkSpec,
    template_of,
)
from hypervisor.runs.supervise import supervise

MAX_TASKS = 5_000
FIELDS = (
    "description",
    "title",
    "body",
    "item",
    "type",
    "priority",
    "key",
    "after",
    "requires",
    "exclusive",
    "assignee",
    "retries",
    "data",
)
LISTS = ("after", "requires", "exclusive")
WAYS = ("command", "function", "agent", "prompt")
TELLING = ("command", "function", "prompt")  # any of these makes a description unnecessary
OF_REDUCE = {*FIELDS, *WAYS} - {"item", "after", "key"}


class TaskRunner(NamedTuple):
    """What runs each task: a command with placeholders, a Python function or an agent. If all are
    empty, the tasks wait for other workers to claim them."""

    command: tuple[str, ...] = ()
    function: str = ""
    agent: str = ""
    prompt: str = ""
    cwd: str = ""
    workers: int | None = None
    time: int | None = None  # milliseconds
    json_results: bool = False  # the last line of a command's output is its result
    permissions: Permissions = "edit"  # of an agent
    git: GitSpec = GitSpec()


class Reduce(NamedTuple):
    """The task that waits for all the others, checked before anything is stored."""

    batch: str
    spec: RunSpec | None
    task: NewTask


class Spawned(NamedTuple):
    """What was stored; `why` says why not all tasks start at once."""

    batch: str
    id: str
    ids: tuple[str, ...]  # the task of each description, in order
    added: int
    reduce: str
    supervised: bool
    why: tuple[str, ...]
    cursor: str


def spawn_parallel_tasks(
    hv: Context,
    tasks: Sequence[str | Mapping[str, Any]],
    branch_id: str = "",
    strategy: Strategy = "auto",
    *,
    how: TaskRunner | None = None,
    name: str = "",
    reduce: str | Mapping[str, Any] | None = None,
) -> Spawned:
    """Add tasks, start the supervisor that runs them in parallel, and return immediately."""
    way = how or TaskRunner()
    spec = _spec(hv, way, strategy)
    batch = validate.label("the batch's name", name or f"parallel-{hv.now()}-{os.urandom(3).hex()}")
    new_tasks = _tasks(tasks, branch_id)
    last = None
    if reduce:
        last = _reduce(hv, reduce, branch=branch_id, way=way, strategy=strategy, batch=batch)
    hv.store.read(insert.check_links, new_tasks, batch)  # before anything is stored
    cursor = f"batch:{'-'.join(batch.split())}"[: validate.MAX_NAME_LENGTH]
    start_cursor(hv, cursor)
    batch_id, added = _store(hv, spec, new_tasks, batch)
    ids = _ids(hv, batch_id, new_tasks)
    final = _add_reduce(hv, last, batch_id, ids) if last else ""
    if spec is not None:
        supervise(hv, wait=False)
    reasons = _why(hv, batch_id, spec, new_tasks)
    return Spawned(batch, batch_id, ids, added, final, spec is not None, reasons, cursor)


def _spec(hv: Context, way: TaskRunner, strategy: Strategy) -> RunSpec | None:
    if strategy not in STRATEGIES:
        raise InvalidInput(f"unknown strategy: use one of {', '.join(STRATEGIES)}.")
    if way.git.verify and not way.git.merge:
        raise InvalidInput("verify works only with merge, for instance merge: branch.")
    if not (way.command or way.function or way.agent):
        if way.git.merge:
            raise InvalidInput("merge needs a command, a function or an agent.")
        return None
    if sum(map(bool, (way.command, way.function, way.agent))) > 1:
        raise InvalidInput("give only one of: a command, a function, an agent.")
    cwd = os.path.abspath(way.cwd or ".")
    if not os.path.isdir(cwd):
        raise InvalidInput(f"no such folder: {cwd}")
    work, limits = _work(hv, way), Limits(time=way.time)
    spec = RunSpec(cwd, work, workers=way.workers, strategy=strategy, limits=limits, git=way.git)
    return check_spec(spec)


def _work(hv: Context, way: TaskRunner) -> WorkSpec:
    if way.agent:
        from hypervisor.agents.agents import equipped_spec

        agent = AgentSpec(way.agent, prompt=way.prompt, permissions=way.permissions)
        return equipped_spec(hv, agent)
    if way.prompt:
        raise InvalidInput("a prompt needs an agent.")
    if way.function:
        return FunctionSpec(way.function)
    command = CommandSpec(way.command, result="json" if way.json_results else "none")
    template_of(command)  # refuses invalid placeholders
    return command


def _tasks(tasks: Sequence[str | Mapping[str, Any]], branch: str) -> list[NewTask]:
    """The tasks, each with its own key, so that spawning the same tasks again adds nothing."""
    if not tasks:
        raise InvalidInput("no tasks were given.")
    if len(tasks) > MAX_TASKS:
        raise InvalidInput(f"{len(tasks):,} tasks at once (maximum {MAX_TASKS:,}); use `hv run`.")
    objects = [_object(number, task) for number, task in enumerate(tasks, 1)]
    items = [Item(_item(fields), number) for number, fields in enumerate(objects, 1)]
    pairs = zip(objects, occurrences(items), strict=True)
    new_tasks = [_task(fields, item, times, branch) for fields, (item, times) in pairs]
    keys = [task.key or "" for task in new_tasks]
    after = [tuple(_needed(name, keys) for name in fields.get("after") or ()) for fields in objects]
    return [
        checked_task(number, task._replace(after=needed))
        for number, (task, needed) in enumerate(zip(new_tasks, after, strict=True), 1)
    ]


def _object(number: int, task: object) -> Mapping[str, Any]:
    fields = {"description": task} if isinstance(task, str) else task
    if not isinstance(fields, Mapping) or not _text(fields):
        raise InvalidInput(f"task {number} has no description. Nothing was started.")
    if unknown := sorted(set(fields) - set(FIELDS)):
        raise InvalidInput(
            f"task {number}: unknown field {str(unknown[0])[:40]!r}; use one of "
            f"{', '.join(FIELDS)}. Nothing was started."
        )
    for name in LISTS:
        if not isinstance(fields.get(name) or [], list | tuple):
            raise InvalidInput(f"task {number}: {name} must be a list. Nothing was started.")
    return fields


def _text(task: Mapping[str, Any]) -> str:
    return str(task.get("description") or task.get("title") or task.get("item") or "")


def _item(task: Mapping[str, Any]) -> str:
    return str(task.get("item") or _text(task))


def _task(task: Mapping[str, Any], item: Item, times: int, branch: str) -> NewTask:
    plain = task_for(item, NewTask("", data=_extra(task)), times)
    own = {
        name: task[name]
        for name in ("body", "type", "priority", "assignee", "retries", "key")
        if task.get(name) is not None
    }
    lists = {name: tuple(task.get(name) or ()) for name in ("requires", "exclusive")}
    title = " ".join(_text(task).split())[: validate.MAX_TITLE_LENGTH]
    return plain._replace(**{"type": "run", **own, **lists}, title=title, branch=branch)


def _extra(task: Mapping[str, Any]) -> dict[str, Any]:
    data = task.get("data")
    if data is None:
        return {}
    return {"columns": data} if isinstance(data, dict) else {"given": data}


def _needed(name: object, keys: list[str]) -> str:
    """`after` names another task by its position (from 1), its key or its id."""
    if isinstance(name, int) and not isinstance(name, bool):
        if not 1 <= name <= len(keys):
            raise InvalidInput(f"after {name}: no such task; use 1 to {len(keys)}.")
        return keys[name - 1]
    return validate.text("after", name, empty=False)


def _store(hv: Context, spec: RunSpec | None, tasks: list[NewTask], batch: str) -> tuple[str, int]:
    """The id of the batch, and how many of the tasks are new."""
    if spec is None:
        added = add(hv, tasks, batch)
        return hv.store.read(queries.batch, batch).id, len(added.ids)
    submitted = submit(hv, spec, tasks, batch, together=True)
    return submitted.batch.id, submitted.added


def _ids(hv: Context, batch: str, tasks: list[NewTask]) -> tuple[str, ...]:
    """The ids of the tasks, including those that already existed."""
    by_key: dict[str, str] = {}
    before = None
    while page := hv.store.read(queries.list_tasks, TaskFilter(batch=batch), 1_000, before):
        by_key.update((task.key, task.id) for task in page if task.key is not None)
        before = page[-1].id
        if all(task.key in by_key for task in tasks):
            break
    return tuple(by_key.get(task.key or "", "") for task in tasks)


def _reduce(
    hv: Context,
    reduce: str | Mapping[str, Any],
    *,
    branch: str,
    way: TaskRunner,
    strategy: Strategy,
    batch: str,
) -> Reduce:
    """The reduce has its own batch, because its command or prompt differs."""
    from hypervisor.batches.pipeline_names import reduce_name

    request = {"description": reduce} if isinstance(reduce, str) else dict(reduce)
    if not _text(request) and any(request.get(word) for word in TELLING):
        request["description"] = REDUCE
    if not _text(request) or set(request) - OF_REDUCE:
        raise InvalidInput(
            f"reduce needs a description, or one of {', '.join(TELLING)}, and takes "
            f"{', '.join(sorted(OF_REDUCE))}. Nothing was started."
        )
    name = validate.label("the batch's name, with the word reduce,", reduce_name(batch))
    own = {word: request[word] for word in WAYS if request.get(word)}
    spec = _spec(hv, _other_way(way, own), strategy) if own or way.agent else None
    if spec is not None:
        spec = spec._replace(
            workspace="project", git=GitSpec()
        )  # it reads the results of the others
    path = results_path(hv, batch)
    fields = {word: value for word, value in request.items() if word in FIELDS and word != "data"}
    body = f"{request.get('body') or ''}\n\n{mention(path)}".strip()
    task = _task(_object(1, {**fields, "body": body, "key": REDUCE}), Item(path, 1), 1, branch)
    data: Json = {**task.data, "given": request.get("data")}
    return Reduce(name, spec, checked_task(1, task._replace(data=data)))


def _add_reduce(hv: Context, last: Reduce, batch: str, ids: Sequence[str]) -> str:
    task = last.task._replace(data={**last.task.data, REDUCES: batch}, after=tuple(ids))
    reduce_batch, _ = _store(hv, last.spec, [task], last.batch)
    (reduce_task,) = _ids(hv, reduce_batch, [task])
    hv.store.write(pipelines.save, pipelines.Pipeline((batch,), reduce_batch, reduce_task))
    return reduce_task


def _other_way(way: TaskRunner, own: Mapping[str, Any]) -> TaskRunner:
    if not own:
        return way
    command = own.get("command") or ()
    if isinstance(command, str):
        raise InvalidInput("the command of reduce must be a list of words.")
    named = ("function", "agent", "prompt")
    texts: dict[str, Any] = {word: str(own.get(word) or "") for word in named}
    return way._replace(command=tuple(map(str, command)), workers=1, **texts)


def _why(hv: Context, batch: str, spec: RunSpec | None, tasks: list[NewTask]) -> tuple[str, ...]:
    """Why not all tasks start at once."""
    if spec is None:
        return ("no workers: they wait until a worker calls claim_next_task",)
    waiting = sum(bool(task.after) for task in tasks)
    paused = next(
        (p for p in hv.store.read(pauses_sql.pauses) if p.scope == "all" or p.name == batch), None
    )
    host = hv.launcher.read_status() or {}
    priors = {task.type: prior_of(hv, task.type) for task in tasks}
    return tuple(
        reason
        for reason in (
            f"{waiting} wait for other tasks of the batch" if waiting else "",
            f"paused: {paused.reason or paused.scope}" if paused else "",
            f"at most {spec.workers} at once" if spec.workers else "",
            "one at a time, as requested" if spec.strategy == "sequential" else "",
            f"host: {host['message']}" if host.get("message") else "",
            *(
                f"known about {kind}: parallel benefit {prior['benefit']}"
                for kind, prior in priors.items()
                if prior
            ),
        )
        if reason
    )
