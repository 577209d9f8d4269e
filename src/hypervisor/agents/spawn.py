"""Spawning: tasks that run in parallel on behalf of somebody who does not stay to watch.

All is stored before the answer is given, and a supervisor that outlives its caller
does the rest. A `reduce` task waits for all the others, as in every pattern; if some of
them fail, whoever spawned them decides whether it shall run without.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hypervisor.batches.pipeline import reduce_name
from hypervisor.batches.reduce_input import REDUCE, REDUCES, mention, results_path
from hypervisor.batches.sql import pipelines
from hypervisor.batches.wait import start_cursor
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.items import occurrences, task_for
from hypervisor.inputs.template import Item
from hypervisor.learning.learn import prior_of
from hypervisor.queue.add import add, checked_task
from hypervisor.queue.context import Context
from hypervisor.queue.sql import insert, queries
from hypervisor.queue.task import Json, NewTask, TaskFilter
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.check_spec import check_spec
from hypervisor.runs.run import run
from hypervisor.runs.spec import STRATEGIES, RunSpec, template_of
from hypervisor.runs.supervise import supervise

MOST_TASKS = 5_000
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
TELLING = ("command", "function", "prompt")  # what to do, so that no description is needed
OF_REDUCE = {*FIELDS, *WAYS} - {"item", "after", "key"}


class How(NamedTuple):
    """What runs each task: a command with placeholders, a Python function or an agent.
    Nothing of it: the tasks wait for workers that claim."""

    command: tuple[str, ...] = ()
    function: str = ""
    agent: str = ""
    prompt: str = ""
    cwd: str = ""
    workers: int | None = None
    time: int | None = None  # milliseconds
    json_results: bool = False  # the last line that a command prints is its result
    permissions: str = "edit"  # of an agent


class Reduce(NamedTuple):
    """The task that waits for all the others, checked before anything is stored."""

    batch: str
    spec: RunSpec | None
    task: NewTask


class Spawned(NamedTuple):
    """What was stored; `why` says what keeps the rest from starting at once."""

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
    strategy: str = "auto",
    *,
    how: How | None = None,
    name: str = "",
    reduce: str | Mapping[str, Any] | None = None,
) -> Spawned:
    """Store tasks, start or wake the supervisor that runs them in parallel, and return at once."""
    way = how or How()
    spec = _spec(hv, way, strategy)
    batch = validate.label("the batch's name", name or f"parallel-{hv.now()}-{os.urandom(3).hex()}")
    made = _tasks(tasks, branch_id)
    last = None
    if reduce:
        last = _reduce(hv, reduce, branch=branch_id, way=way, strategy=strategy, batch=batch)
    hv.store.read(insert.check_links, made, batch)  # before anything is left behind
    cursor = f"batch:{'-'.join(batch.split())}"[: validate.LONGEST_NAME]
    start_cursor(hv, cursor)
    found, added = _store(hv, spec, made, batch)
    ids = _ids(hv, found, made)
    final = _add_reduce(hv, last, found, ids) if last else ""
    if spec is not None:
        supervise(hv, wait=False)
    why = _why(hv, found, spec, made)
    return Spawned(batch, found, ids, added, final, spec is not None, why, cursor)


def _spec(hv: Context, way: How, strategy: str) -> RunSpec | None:
    if strategy not in STRATEGIES:
        raise InvalidInput(f"unknown strategy: use one of {', '.join(STRATEGIES)}.")
    if not (way.command or way.function or way.agent):
        return None
    if sum(map(bool, (way.command, way.function, way.agent))) > 1:
        raise InvalidInput("name a command, a function or an agent, only one of them.")
    cwd = os.path.abspath(way.cwd or ".")
    if not os.path.isdir(cwd):
        raise InvalidInput(f"there is no folder {cwd}.")
    spec = RunSpec(
        cwd,
        way.command,
        way.function or None,
        workers=way.workers,
        time=way.time,
        strategy=strategy,
        result="json" if way.command and way.json_results else "none",
        agent=way.agent,
        prompt=way.prompt,
        permissions=way.permissions,
    )
    if way.agent:
        from hypervisor.agents.agents import equipped_spec

        spec = equipped_spec(hv, spec)
    if way.command:
        template_of(spec)
    return check_spec(spec)


def _tasks(tasks: Sequence[str | Mapping[str, Any]], branch: str) -> list[NewTask]:
    """The tasks, each with a key of its own, so that spawning the same again adds nothing."""
    if not tasks:
        raise InvalidInput("no tasks were given.")
    if len(tasks) > MOST_TASKS:
        raise InvalidInput(f"{len(tasks):,} tasks at once, at most {MOST_TASKS:,}: use `hv run`.")
    given = [_object(number, task) for number, task in enumerate(tasks, 1)]
    items = [Item(_item(each), number) for number, each in enumerate(given, 1)]
    pairs = zip(given, occurrences(items), strict=True)
    made = [_task(each, item, times, branch) for each, (item, times) in pairs]
    keys = [task.key or "" for task in made]
    after = [tuple(_needed(name, keys) for name in each.get("after") or ()) for each in given]
    return [
        checked_task(number, task._replace(after=needed))
        for number, (task, needed) in enumerate(zip(made, after, strict=True), 1)
    ]


def _object(number: int, task: object) -> Mapping[str, Any]:
    found = {"description": task} if isinstance(task, str) else task
    if not isinstance(found, Mapping) or not _text(found):
        raise InvalidInput(f"task {number} has no description. Nothing was started.")
    if unknown := sorted(set(found) - set(FIELDS)):
        raise InvalidInput(
            f"task {number}: unknown field {str(unknown[0])[:40]!r}; there are "
            f"{', '.join(FIELDS)}. Nothing was started."
        )
    for name in LISTS:
        if not isinstance(found.get(name) or [], list | tuple):
            raise InvalidInput(f"task {number}: {name} must be a list. Nothing was started.")
    return found


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
    title = " ".join(_text(task).split())[: validate.LONGEST_TITLE]
    return plain._replace(**{"type": "run", **own, **lists}, title=title, branch=branch)


def _extra(task: Mapping[str, Any]) -> dict[str, Any]:
    data = task.get("data")
    if data is None:
        return {}
    return {"columns": data} if isinstance(data, dict) else {"given": data}


def _needed(name: object, keys: list[str]) -> str:
    """`after` names another task by its place (from 1), its key or its id."""
    if isinstance(name, int) and not isinstance(name, bool):
        if not 1 <= name <= len(keys):
            raise InvalidInput(f"after {name}: there are tasks 1 to {len(keys)}.")
        return keys[name - 1]
    return validate.text("after", name, empty=False)


def _store(hv: Context, spec: RunSpec | None, tasks: list[NewTask], batch: str) -> tuple[str, int]:
    """The id of the batch, and how many of the tasks are new."""
    if spec is None:
        added = add(hv, tasks, batch)
        return hv.store.read(queries.batch, batch).id, len(added.ids)
    submitted = run(hv, spec, tasks, batch, together=True)
    return submitted.batch.id, submitted.added


def _ids(hv: Context, batch: str, tasks: list[NewTask]) -> tuple[str, ...]:
    """The ids of the tasks, also of those that were there before."""
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
    way: How,
    strategy: str,
    batch: str,
) -> Reduce:
    """In a batch of its own, because another command, or another prompt, runs it."""
    given = {"description": reduce} if isinstance(reduce, str) else dict(reduce)
    if not _text(given) and any(given.get(word) for word in TELLING):
        given["description"] = REDUCE
    if not _text(given) or set(given) - OF_REDUCE:
        raise InvalidInput(
            f"reduce needs a description, or one of {', '.join(TELLING)}, and takes "
            f"{', '.join(sorted(OF_REDUCE))}. Nothing was started."
        )
    name = validate.label("the batch's name, with the word reduce,", reduce_name(batch))
    own = {word: given[word] for word in WAYS if given.get(word)}
    spec = _spec(hv, _other_way(way, own), strategy) if own or way.agent else None
    path = results_path(hv, batch)
    fields = {word: value for word, value in given.items() if word in FIELDS and word != "data"}
    body = f"{given.get('body') or ''}\n\n{mention(path)}".strip()
    task = _task(_object(1, {**fields, "body": body, "key": REDUCE}), Item(path, 1), 1, branch)
    data: Json = {**task.data, "given": given.get("data")}
    return Reduce(name, spec, checked_task(1, task._replace(data=data)))


def _add_reduce(hv: Context, last: Reduce, batch: str, ids: Sequence[str]) -> str:
    task = last.task._replace(data={**last.task.data, REDUCES: batch}, after=tuple(ids))
    found, _ = _store(hv, last.spec, [task], last.batch)
    (made,) = _ids(hv, found, [task])
    hv.store.write(pipelines.save, pipelines.Pipeline((batch,), found, made))
    return made


def _other_way(way: How, own: Mapping[str, Any]) -> How:
    if not own:
        return way
    command = own.get("command") or ()
    if isinstance(command, str):
        raise InvalidInput("the command of reduce must be a list of words.")
    named = ("function", "agent", "prompt")
    texts: dict[str, Any] = {word: str(own.get(word) or "") for word in named}
    return way._replace(command=tuple(map(str, command)), workers=1, **texts)


def _why(hv: Context, batch: str, spec: RunSpec | None, tasks: list[NewTask]) -> tuple[str, ...]:
    """What decides how many run at once."""
    if spec is None:
        return ("nothing runs them: they wait for workers that claim_next_task",)
    waiting = sum(bool(task.after) for task in tasks)
    paused = next(
        (p for p in hv.store.read(runs_sql.pauses) if p.scope == "all" or p.name == batch), None
    )
    host = hv.launcher.read_status() or {}
    priors = {task.type: prior_of(hv, task.type) for task in tasks}
    return tuple(
        said
        for said in (
            f"{waiting} wait for others of them" if waiting else "",
            f"paused: {paused.reason or paused.scope}" if paused else "",
            f"at most {spec.workers} at once" if spec.workers else "",
            "one after the other, as asked" if spec.strategy == "sequential" else "",
            f"host: {host['said']}" if host.get("said") else "",
            *(
                f"said of {kind}: parallel benefit {prior['benefit']}"
                for kind, prior in priors.items()
                if prior
            ),
        )
        if said
    )
