"""Pipelines: stages that each item passes through, and a reduce over all results.

Each stage is a batch of its own, because something else runs it. An item's task in a later
stage waits for its task in the stage before: there is no barrier between stages. The reduce
waits for all tasks of the last stage; `reduce.py` releases it where that is not enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from hypervisor.batches.chunk import NONE
from hypervisor.batches.reduce import release_reduce
from hypervisor.batches.reduce_input import PREVIOUS, REDUCE, REDUCES, STAGE, mention, results_path
from hypervisor.batches.sql import pipelines
from hypervisor.batches.sql.pipelines import Pipeline
from hypervisor.core import validate
from hypervisor.queue import lifecycle
from hypervisor.queue.add import insert_tasks
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries, steer
from hypervisor.queue.task import Changes, Json, NewTask, Task, TaskFilter
from hypervisor.runs.check_spec import check_spec
from hypervisor.runs.run import Submitted, reports, run
from hypervisor.runs.spec import RunSpec

LABEL = "agent:"
PAGE = 1_000
NEVER = 4_102_444_800_000  # the year 2100
QUEUED = (lifecycle.INBOX, lifecycle.WAITING, lifecycle.ACTIVE)


class PipelineRun(NamedTuple):
    """What `run_pattern` submitted: the stages in order, then the reduce."""

    parts: tuple[Submitted, ...]
    pipeline: Pipeline | None = None

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
    *,
    reduce: RunSpec | None = None,
    chunks: Sequence[str] = (),
    together: bool = False,
    title: str = REDUCE,
) -> PipelineRun:
    """Submit items that go through several stages, and a reduce that puts the results together.

    A later stage's command names what came of the one before as `{result}`, the file with what
    that printed as `{output}`. The item of the reduce is a file with a line of JSON for each item.
    """
    for later in (*then, *([reduce] if reduce else ())):
        check_spec(later)
    names = [validate.label("the name of a stage", stage) for stage in stage_names(name, then)]
    validate.label("the name of the reduce", reduce_name(name))
    parts = [run(hv, spec, tasks, name, chunks=chunks, together=together)]
    for number, (later, stage) in enumerate(zip(then, names, strict=True), 2):
        parts.append(run(hv, later, _next_tasks(hv, parts[-1].batch.id, number), stage))
    batches = tuple(part.batch.id for part in parts)
    if reduce is None:
        return PipelineRun(tuple(parts), _save_stages(hv, batches))
    gated = spec.gate != NONE
    last, task = _submit_reduce(hv, reduce, parts, title=title, gated=gated)
    pipeline = Pipeline(batches, last.batch.id, task, spec.fail_fast)
    hv.store.write(pipelines.save, pipeline, pending=True)
    if release_reduce(hv, batches[0]):
        last = last._replace(still_open=1, added=0, retried=0)
    return PipelineRun((*parts, last), pipeline)


def stage_names(name: str, then: Sequence[RunSpec]) -> list[str]:
    """The names of the later stages' batches. A digest tells apart stages that run something
    else, or come after something else."""
    from hashlib import blake2b

    names, history = [], ""
    for spec in then:
        program = spec.function or spec.agent or os.path.basename(spec.command[0])
        history = "\0".join((history, spec.cwd, program, spec.prompt, *spec.command))
        digest = blake2b(history.encode("utf-8", "surrogateescape"), digest_size=3).hexdigest()
        safe = "".join(c if c.isalnum() or c in "._:" else "-" for c in program)[:40]
        names.append(f"{name} then {safe}-{digest}")
    return names


def reduce_name(name: str) -> str:
    """The name of the reduce's batch."""
    return f"{name} {REDUCE}"


def batches_of(hv: Context, batch: str) -> tuple[str, ...]:
    """The ids of all batches of the pipeline that a batch belongs to; else the batch alone."""
    pipeline = hv.store.read(pipelines.of_batch, batch)
    return (batch,) if pipeline is None else pipeline.batches


def batches_from(hv: Context, batch: str) -> tuple[str, ...]:
    """What a person means who names this batch: the whole pipeline, if it is the first of it."""
    batches = batches_of(hv, batch)
    return batches if batches[0] == batch else (batch,)


def _save_stages(hv: Context, batches: tuple[str, ...]) -> Pipeline | None:
    """A batch that is run without what followed on it before stands alone again."""
    if len(batches) > 1:
        pipeline = Pipeline(batches)
        hv.store.write(pipelines.save, pipeline)
        return pipeline
    if hv.store.read(pipelines.of_batch, batches[0]) is not None:
        hv.store.write(pipelines.remove, batches[0])
    return None


def _submit_reduce(
    hv: Context, spec: RunSpec, parts: Sequence[Submitted], *, title: str, gated: bool
) -> tuple[Submitted, str]:
    """Add the reduce, or find it, and let it wait for what is not done yet; where there are
    checkpoints, for the last decision, too."""
    batch = parts[-1].batch
    declared = run(hv, spec, (), reduce_name(parts[0].batch.name))
    branch = next((task.branch for task in _in_order(hv, batch.id)), "")
    path = results_path(hv, batch.name)
    data: Json = {"item": path, "number": 1, REDUCES: batch.id}
    new = NewTask(title, mention(path), REDUCE, key=REDUCE, branch=branch, data=data)
    added = insert_tasks(hv, [new._replace(start_at=NEVER)], declared.batch.name)
    if added.ids:
        task_id, state = added.ids[0], lifecycle.WAITING
    else:
        task_id, state = added.duplicates[0].task, added.duplicates[0].state
    changes = Changes(title=new.title, body=new.body, data=new.data)
    if state in QUEUED:
        open_tasks = (task.id for task in reports(hv, batch.id) if task.state != lifecycle.DONE)
        changes = changes._replace(after=tuple(open_tasks), start_at=NEVER if gated else 0)
    elif state not in (lifecycle.DONE, lifecycle.IN_PROGRESS, lifecycle.MERGING):
        hv.store.write(pipelines.set_reduce_input, task_id, "")
    hv.store.write(steer.update, task_id, changes, hv.actor, hv.now())
    is_open = not added.ids and state != lifecycle.DONE
    return declared._replace(added=len(added.ids), still_open=int(is_open)), task_id


def _next_tasks(hv: Context, previous: str, stage: int) -> Iterator[NewTask]:
    """The tasks of a stage: one for each task of the previous stage, which it waits for."""
    for task in _in_order(hv, previous):
        data = task.data if isinstance(task.data, dict) else None
        yield NewTask(
            task.title,
            task.body,
            task.type,
            task.priority,
            key=task.key or task.id,
            branch=task.branch,
            assignee=task.assignee,
            requires=tuple(name for name in task.requires if not name.startswith(LABEL)),
            after=(task.id,),
            retries=task.retries,
            data=None if data is None else {**data, PREVIOUS: task.id, STAGE: stage},
        )


def _in_order(hv: Context, batch: str) -> Iterator[Task]:
    """The tasks of a batch in the order they were added, page by page."""
    ids = (task.id for task in reports(hv, batch))
    while block := list(islice(ids, PAGE)):
        where = TaskFilter(batch=batch)
        yield from reversed(hv.store.read(queries.list_tasks, where, len(block), block[-1] + "z"))
