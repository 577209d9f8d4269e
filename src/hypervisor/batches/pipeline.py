"""Pipelines: stages that each item passes through, and a reduce over all results.

Each stage is its own batch, with its own run spec. An item's task in a later stage waits for its
task in the previous stage: there is no barrier between stages. The reduce waits for all tasks of
the last stage; `reduce.py` releases it when some of them did not succeed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from hypervisor.batches.pipeline_names import REDUCE, reduce_name
from hypervisor.batches.reduce_input import PREVIOUS, REDUCES, STAGE, mention, results_path
from hypervisor.batches.sql import pipelines
from hypervisor.batches.sql.pipelines import Pipeline
from hypervisor.batches.submit import Submitted, submit
from hypervisor.core import validate
from hypervisor.core.records import NamedTuple
from hypervisor.queue import lifecycle
from hypervisor.queue.add import insert_tasks
from hypervisor.queue.context import Context
from hypervisor.queue.lane import check_priority
from hypervisor.queue.sql import queries, steer
from hypervisor.queue.task import Changes, Json, NewTask, Task, TaskFilter
from hypervisor.runs.check_spec import check_spec
from hypervisor.runs.rerun import Rerun, check_not_paused
from hypervisor.runs.results import reports
from hypervisor.runs.spec import AgentSpec, CommandSpec, FunctionSpec, RunSpec

LABEL = "agent:"
PAGE = 1_000
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
    rerun: Rerun = "changed",
) -> PipelineRun:
    """Submit items that pass through several stages, and a reduce that combines the results.

    A later stage's command uses `{result}` for the result of the previous stage and `{output}` for
    the file with its output. The item of the reduce is a file with a line of JSON for each item.
    """
    for later in (*then, *([reduce] if reduce else ())):
        check_spec(later)
    names = [validate.label("the name of a stage", stage) for stage in stage_names(name, then)]
    validate.label("the name of the reduce", reduce_name(name))
    check_not_paused(hv, [name, *names, reduce_name(name)])  # before anything is submitted
    parts = [submit(hv, spec, tasks, name, chunks=chunks, together=together, rerun=rerun)]
    for number, (later, stage) in enumerate(zip(then, names, strict=True), 2):
        following = _next_tasks(hv, parts[-1].batch.id, number)
        parts.append(submit(hv, later, following, stage, rerun=rerun))
    batches = tuple(part.batch.id for part in parts)
    if reduce is None:
        return PipelineRun(tuple(parts), _save_stages(hv, batches))

    gated = spec.gate != "none"
    last, task = _submit_reduce(hv, reduce, parts, title=title, gated=gated)
    if rerun == "all":
        hv.store.write(pipelines.set_reduce_input, task, "")
    pipeline = Pipeline(batches, last.batch.id, task, spec.fail_fast)
    hv.store.write(pipelines.save, pipeline, pending=True)
    from hypervisor.batches.reduce import release_reduce

    if release_reduce(hv, batches[0]):
        last = last._replace(still_open=1, added=0, retried=0)
    return PipelineRun((*parts, last), pipeline)


def stage_names(name: str, then: Sequence[RunSpec]) -> list[str]:
    """The names of the later stages' batches. A digest distinguishes stages with different work or
    different previous stages."""
    from hashlib import blake2b

    names, history = [], ""
    for spec in then:
        program, words = _program(spec)
        history = "\0".join((history, spec.cwd, program, *words))
        digest = blake2b(history.encode("utf-8", "surrogateescape"), digest_size=3).hexdigest()
        safe = "".join(c if c.isalnum() or c in "._:" else "-" for c in program)[:40]
        names.append(f"{name} then {safe}-{digest}")
    return names


def _program(spec: RunSpec) -> tuple[str, tuple[str, ...]]:
    """What runs a stage, and the text that distinguishes it from another stage of the same name."""
    match spec.work:
        case CommandSpec(argv):
            return os.path.basename(argv[0]), ("", *argv)
        case FunctionSpec(name):
            return name, ("",)
        case AgentSpec():
            return spec.work.name, (spec.work.prompt,)


def _save_stages(hv: Context, batches: tuple[str, ...]) -> Pipeline | None:
    """Without later stages, a pipeline stored by an earlier run is removed."""
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
    """Add the reduce, or find it, and let it wait for the tasks that are not done yet; with
    checkpoints, also for the last decision."""
    batch = parts[-1].batch
    declared = submit(hv, spec, (), reduce_name(parts[0].batch.name), rerun="unfinished")
    branch = next((task.branch for task in _in_order(hv, batch.id)), "")
    path = results_path(hv, batch.name)
    data: Json = {"item": path, "number": 1, REDUCES: batch.id}
    new = NewTask(title, mention(path), REDUCE, key=REDUCE, branch=branch, data=data)
    added = insert_tasks(hv, [new._replace(start_at=lifecycle.NEVER)], declared.batch.name)
    if added.ids:
        task_id, state = added.ids[0], lifecycle.WAITING
    else:
        task_id, state = added.duplicates[0].task, added.duplicates[0].state
    changes = Changes(title=new.title, body=new.body, data=new.data)
    if state in QUEUED:
        open_tasks = (task.id for task in reports(hv, batch.id) if task.state != lifecycle.DONE)
        changes = changes._replace(
            after=tuple(open_tasks), start_at=lifecycle.NEVER if gated else 0
        )
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
            check_priority(task.priority),
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
        filter = TaskFilter(batch=batch)
        yield from reversed(hv.store.read(queries.list_tasks, filter, len(block), block[-1] + "z"))
