"""Patterns: stages that each item goes through, and a reduce over all that came of them.

Each stage is a batch of its own, because something else runs it. An item's task in a later
stage waits for its task in the stage before: there is no barrier between stages. The reduce
waits for all tasks of the last stage. Which parts make a whole is kept in the store with each of
them, and so is whether somebody has still to look after the reduce: it is to run once
everything has ended, however it did, and again when something new came in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from hypervisor.batches.chunk import NONE
from hypervisor.batches.reduce_input import (
    FROM,
    GATHER,
    GATHERED,
    REDUCE,
    STAGE,
    is_new,
    results_path,
    told_of,
)
from hypervisor.batches.sql import chunks as chunks_sql
from hypervisor.core import validate
from hypervisor.core.errors import RequestError, WrongState
from hypervisor.queue import lifecycle
from hypervisor.queue.add import insert_tasks
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries, steer
from hypervisor.queue.task import Batch, Changes, Json, NewTask, Task, TaskFilter
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.check_spec import check_spec
from hypervisor.runs.run import Submitted, reports, run
from hypervisor.runs.spec import ALL, BATCH, RunSpec
from hypervisor.store import settings

PATTERN = "pattern "  # and a batch's id: a setting, the whole that it is part of
PENDING_REDUCE = "untended "  # and the first batch's id: its reduce may be due
LABEL = "agent:"
PAGE = 1_000
LONGEST_REASON = 200
NEVER = 4_102_444_800_000  # the year 2100
MOVING = (lifecycle.ACTIVE, lifecycle.IN_PROGRESS, lifecycle.MERGING)
QUEUED = (lifecycle.INBOX, lifecycle.WAITING, lifecycle.ACTIVE)


class Pattern(NamedTuple):
    """The parts of a whole: the ids of its stages' batches in order, and of its reduce."""

    stages: tuple[str, ...]
    reduce_batch: str = ""
    reduce: str = ""  # the task
    fail_fast: bool = False  # then the reduce does not run on a part of the results

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self.stages, self.reduce_batch) if self.reduce_batch else self.stages


class PipelineRun(NamedTuple):
    """What `run_pattern` found to do, part by part: the stages in order, then the reduce."""

    parts: tuple[Submitted, ...]
    pattern: Pattern | None = None

    @property
    def first(self) -> Submitted:
        return self.parts[0]

    @property
    def to_do(self) -> int:
        return sum(part.to_do for part in self.parts)

    @property
    def batches(self) -> tuple[str, ...]:
        return tuple(part.batch.id for part in self.parts)


def run_pattern(
    hv: Context,
    spec: RunSpec,
    tasks: Iterable[NewTask],
    name: str,
    then: Sequence[RunSpec] = (),
    reduce: RunSpec | None = None,
    chunks: Sequence[str] = (),
    together: bool = False,
    title: str = REDUCE,
) -> PipelineRun:
    """Submit items that go through several stages, and a reduce that puts the results together.

    A later stage's command names what came of the one before as `{result}`, the file with what
    that printed as `{output}`. The item of the reduce is a file with a line of JSON for each item.
    """
    for each in (*then, *([reduce] if reduce else ())):
        check_spec(each)
    names = [validate.label("the name of a stage", each) for each in stage_names(name, then)]
    validate.label("the name of the reduce", reduce_name(name))
    parts = [run(hv, spec, tasks, name, chunks=chunks, together=together)]
    for number, (each, called) in enumerate(zip(then, names, strict=True), 2):
        parts.append(run(hv, each, _next_tasks(hv, parts[-1].batch.id, number), called))
    batches = tuple(part.batch.id for part in parts)
    if reduce is None:
        found = Pattern(batches) if then else None
        _keep(hv, batches[0], found)
        return PipelineRun(tuple(parts), found)
    gated = spec.gate != NONE
    last, task = _submit_reduce(hv, reduce, parts[-1].batch, parts[0].batch.name, title, gated)
    found = Pattern(batches, last.batch.id, task, spec.fail_fast)
    _keep(hv, batches[0], found)
    hv.store.write(settings.set_setting, PENDING_REDUCE + batches[0], os.urandom(6).hex())
    if release_reduce(hv, batches[0]):
        last = last._replace(still_open=1, added=0, retried=0)
    return PipelineRun((*parts, last), found)


def stage_names(name: str, then: Sequence[RunSpec]) -> list[str]:
    """What the batches of the later stages are called. One that runs something else, or comes
    after something else, is another one."""
    from hashlib import blake2b

    found, before = [], ""
    for spec in then:
        what = spec.function or spec.agent or os.path.basename(spec.command[0])
        before = "\0".join((before, spec.cwd, what, spec.prompt, *spec.command))
        mark = blake2b(before.encode("utf-8", "surrogateescape"), digest_size=3).hexdigest()
        safe = "".join(c if c.isalnum() or c in "._:" else "-" for c in what)[:40]
        found.append(f"{name} then {safe}-{mark}")
    return found


def reduce_name(name: str) -> str:
    """What the batch of the reduce is called."""
    return f"{name} {REDUCE}"


def reduce_task(hv: Context, batch: Batch, title: str, branch: str = "") -> NewTask:
    """The task that gets the results of a batch."""
    path = results_path(hv, batch.name)
    data: Json = {"item": path, "number": 1, GATHER: batch.id}
    return NewTask(title, told_of(path), REDUCE, key=REDUCE, branch=branch, data=data)


def keep_pattern(hv: Context, found: Pattern) -> None:
    """Let every part know the whole."""
    text = json.dumps(found)
    for batch in found.parts:
        hv.store.write(settings.set_setting, PATTERN + batch, text)


def pattern_of(hv: Context, batch: str) -> Pattern | None:
    """The whole that a batch, named by its id, is part of."""
    text = hv.store.read(settings.setting, PATTERN + batch)
    if text is None:
        return None
    stages, *rest = json.loads(text)
    return Pattern(tuple(stages), *rest)


def parts_of(hv: Context, batch: str) -> tuple[str, ...]:
    """The ids of the batches that make a whole with this one."""
    found = pattern_of(hv, batch)
    return (batch,) if found is None else found.parts


def whole_of(hv: Context, batch: str) -> tuple[str, ...]:
    """The parts that somebody means who names this batch: all, if it is the first of them."""
    found = pattern_of(hv, batch)
    return (batch,) if found is None or found.stages[0] != batch else found.parts


def is_tended(hv: Context, batch: str) -> bool:
    """Whether nobody has to look after the reduce of this whole any more."""
    found = pattern_of(hv, batch)
    return (
        found is None or hv.store.read(settings.setting, PENDING_REDUCE + found.stages[0]) is None
    )


def release_reduces(hv: Context) -> None:
    """Look after every reduce that somebody has still to look after."""
    for name in hv.store.read(settings.settings_like, PENDING_REDUCE):
        with suppress(OSError, RequestError):  # one of them must not stop all the others
            release_reduce(hv, name.removeprefix(PENDING_REDUCE))


def release_reduce(hv: Context, batch: str) -> bool:
    """Let the reduce of a whole run, once nothing else of it can: without those that failed, and
    again if there is something new. True if that makes it run."""
    mark = hv.store.read(settings.setting, PENDING_REDUCE + batch)
    found = pattern_of(hv, batch)
    if found is None or not found.reduce or mark is None:
        if mark is not None:
            hv.store.write(settings.unset_same, PENDING_REDUCE + batch, mark)
        return False
    if not is_quiet(hv, found):
        return False
    task = hv.store.read(queries.task, found.reduce)
    if task.state == lifecycle.IN_PROGRESS and is_new(hv, task):
        return False  # what it was given is out of date: it runs once more when it has ended
    moved = False
    if not (found.fail_fast and _not_done(hv, found)):
        with suppress(WrongState):  # somebody else has just done so
            moved = _let_go(hv, task)
    hv.store.write(
        settings.unset_same, PENDING_REDUCE + batch, mark
    )  # unless it was run again meanwhile
    return moved


def is_quiet(hv: Context, found: Pattern) -> bool:
    """Whether nothing of the stages runs, nor will before somebody does something about it.
    In their order: work moves on from stage to stage only."""
    stopped = {pause.name for pause in hv.store.read(runs_sql.pauses) if pause.scope == BATCH}
    if stopped & {*found.parts} or any(
        pause.scope == ALL for pause in hv.store.read(runs_sql.pauses)
    ):
        return False
    waiting = 0
    for batch in found.stages:
        states = hv.store.read(queries.stats, batch, hv.now(), False).states
        if any(states[state] for state in MOVING) or _awaits_decision(hv, batch):
            return False
        waiting += states[lifecycle.WAITING]
    if not waiting:
        return True
    stuck = hv.store.read(runs_sql.stuck, found.stages)
    return sum(stuck.get(batch, 0) for batch in found.stages) >= waiting


def _awaits_decision(hv: Context, batch: str) -> bool:
    return any(chunk.awaits_decision for chunk in hv.store.read(chunks_sql.every, batch))


def _let_go(hv: Context, task: Task) -> bool:
    state = task.state
    if state in lifecycle.TERMINAL or state in (lifecycle.BLOCKED, lifecycle.REVIEW):
        last = hv.store.read(settings.setting, GATHERED + task.id)
        wanted = last == ""  # it did not succeed, and was asked for
        given = state == lifecycle.DONE or (state == lifecycle.FAILED and last is not None)
        if not (wanted or (given and is_new(hv, task))):
            return False
        try:
            came = "something new came in"
            state = hv.store.write(
                steer.requeue, task.id, "reopen", came, hv.actor, hv.now(), task.attempts
            )
        except WrongState:
            return False  # it was reopened, or ran, while we looked: another host was quicker
    if state == lifecycle.WAITING:
        hv.store.write(steer.update, task.id, Changes(after=(), start_at=0), hv.actor, hv.now())
        return True
    return state == lifecycle.ACTIVE


def _submit_reduce(
    hv: Context, spec: RunSpec, batch: Batch, name: str, title: str, gated: bool
) -> tuple[Submitted, str]:
    """Add the reduce, or find it, and let it wait for what is not done yet; where there are
    checkpoints, for the last decision, too."""
    declared = run(hv, spec, (), reduce_name(name))
    branch = next((each.branch for each in _in_order(hv, batch.id)), "")
    task = reduce_task(hv, batch, title, branch)
    added = insert_tasks(hv, [task._replace(start_at=NEVER)], declared.batch.name)
    if added.ids:
        found, state = added.ids[0], lifecycle.WAITING
    else:
        found, state = added.duplicates[0].task, added.duplicates[0].state
    changes = Changes(title=task.title, body=task.body, data=task.data)
    if state in QUEUED:
        needs = tuple(each.id for each in reports(hv, batch.id) if each.state != lifecycle.DONE)
        changes = changes._replace(after=needs, start_at=NEVER if gated else 0)
    elif state not in (lifecycle.DONE, lifecycle.IN_PROGRESS, lifecycle.MERGING):
        hv.store.write(settings.set_setting, GATHERED + found, "")
    hv.store.write(steer.update, found, changes, hv.actor, hv.now())
    is_open = not added.ids and state != lifecycle.DONE
    return declared._replace(added=len(added.ids), still_open=int(is_open)), found


def _next_tasks(hv: Context, before: str, number: int) -> Iterator[NewTask]:
    """The tasks of a stage: one for each of the stage before, and behind it."""
    for task in _in_order(hv, before):
        data = {**task.data, FROM: task.id, STAGE: number} if isinstance(task.data, dict) else None
        yield NewTask(
            task.title,
            task.body,
            task.type,
            task.priority,
            task.key or task.id,
            task.branch,
            task.assignee,
            tuple(name for name in task.requires if not name.startswith(LABEL)),
            after=(task.id,),
            retries=task.retries,
            data=data,
        )


def _in_order(hv: Context, batch: str) -> Iterator[Task]:
    """The tasks of a batch as they were added, page by page."""
    ids = (each.id for each in reports(hv, batch))
    while block := list(islice(ids, PAGE)):
        page = hv.store.read(
            queries.list_tasks, TaskFilter(batch=batch), len(block), block[-1] + "z"
        )
        yield from reversed(page)


def _not_done(hv: Context, found: Pattern) -> bool:
    return any(
        sum(states.values()) > states[lifecycle.DONE]
        for states in (
            hv.store.read(queries.stats, batch, hv.now(), False).states for batch in found.stages
        )
    )


def _keep(hv: Context, first: str, found: Pattern | None) -> None:
    """A batch that is run without what followed on it before is a whole by itself again."""
    if found is not None:
        keep_pattern(hv, found)
    elif hv.store.read(settings.setting, PATTERN + first) is not None:
        hv.store.write(settings.set_setting, PATTERN + first, None)
