"""The progress of a pipeline's stages, the result of its reduce, and whether all succeeded.

The name of the first batch stands for the whole pipeline, that of a later one for itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from hypervisor.batches.pipeline_names import batches_from
from hypervisor.batches.reduce_input import printed
from hypervisor.batches.sql import pipelines
from hypervisor.batches.sql.pipelines import Pipeline
from hypervisor.core import validate
from hypervisor.core.errors import NotFound
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.items import item_of
from hypervisor.queue import lifecycle
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Batch, Json
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.results import BAD, all_done

MAX_REASON_LENGTH = 200
MAX_COMMAND_LENGTH = 300
PLACEHOLDER = re.compile(r"'(\{[\w./#-]*\})'")  # in quotes that it does not need


def has_succeeded(hv: Context, batch: str, states: Mapping[str, int]) -> bool:
    """Whether all tasks of a batch (counted by state) and of its later stages are done."""
    later = (part for part in batches_from(hv, batch) if part != batch)
    return all_done(states) and all(
        all_done(hv.store.read(queries.stats, part, hv.now(), False).states) for part in later
    )


class Stage(NamedTuple):
    """The progress of a stage."""

    batch: str
    what: str  # the command, function or agent
    states: dict[str, int]
    stuck: int = 0  # tasks whose previous stage did not succeed

    @property
    def total(self) -> int:
        return sum(self.states.values())

    @property
    def bad(self) -> int:
        return sum(self.states.get(state, 0) for state in BAD)

    @property
    def left(self) -> int:
        """How many tasks may still run."""
        return self.total - self.bad - self.states.get(lifecycle.DONE, 0) - self.stuck


class Reduced(NamedTuple):
    """The reduce task and its result."""

    id: str
    batch: str
    what: str
    state: str
    reason: str | None
    result: Json
    output: str  # the end of its output
    results: str  # the file with its input


class Overview(NamedTuple):
    """A pipeline, part by part."""

    stages: tuple[Stage, ...]
    reduce: Reduced | None = None

    @property
    def unsuccessful(self) -> list[str]:
        """The parts with failures, each with a short description."""
        stages = enumerate(self.stages, 1)
        parts = [f"stage {n} ({s.bad:,} of {s.total:,})" for n, s in stages if s.bad]
        last = self.reduce
        if last and last.state in BAD:
            parts.append(f"reduce ({(last.reason or last.state)[:MAX_REASON_LENGTH]})")
        return parts

    @property
    def unfinished(self) -> list[str]:
        """The unfinished parts, each with a short description."""
        stages = enumerate(self.stages, 1)
        parts = [f"stage {n} ({s.left:,} of {s.total:,})" for n, s in stages if s.left]
        last = self.reduce
        if last and last.state not in (lifecycle.DONE, *BAD):
            parts.append(f"reduce ({last.state.replace('_', ' ')})")
        return parts


def pattern(hv: Context, batch: str) -> Overview | None:
    """Show the later stages of a batch, their progress, and the result of the reduce."""
    batch_id = hv.store.read(queries.batch, validate.text("the batch", batch)).id
    pipeline = hv.store.read(pipelines.of_batch, batch_id)
    if pipeline is None or pipeline.stages[0] != batch_id:
        return None  # the name of a later stage stands for that stage alone
    stuck = hv.store.read(runs_sql.stuck, pipeline.stages)
    stages = tuple(_stage(hv, batch, stuck.get(batch, 0)) for batch in pipeline.stages)
    return Overview(stages, _reduced(hv, pipeline) if pipeline.reduce_task else None)


def _stage(hv: Context, batch: str, stuck: int) -> Stage:
    stored = hv.store.read(queries.batch, batch)
    states = hv.store.read(queries.stats, batch, hv.now(), False).states
    return Stage(stored.name, what_of(stored), {s: n for s, n in states.items() if n}, stuck)


def _reduced(hv: Context, pipeline: Pipeline) -> Reduced | None:
    try:
        task = hv.store.read(queries.task, pipeline.reduce_task)
    except NotFound:
        return None
    stored = hv.store.read(queries.batch, pipeline.reduce_batch)
    output = printed(hv, task.id, task.attempts) if task.state == lifecycle.DONE else ""
    batch = (stored.name, what_of(stored))
    ended = (task.state, task.reason, task.result)
    return Reduced(task.id, *batch, *ended, output, item_of(task).text)


def what_of(batch: Batch) -> str:
    """The command, function or agent that a batch runs."""
    spec = batch.spec if isinstance(batch.spec, dict) else {}
    for kind in ("function", "agent"):
        if isinstance(spec.get(kind), str):
            return str(spec[kind])[:MAX_COMMAND_LENGTH]
    command = spec.get("command")
    if not isinstance(command, list):
        return ""
    return PLACEHOLDER.sub(r"\1", shlex.join(map(str, command)))[:MAX_COMMAND_LENGTH]
