"""The prompt of a task, for people who want to know what an agent is told."""

from __future__ import annotations

from hypervisor.agents.prompts import FOLDER, Prompts, context_of
from hypervisor.batches.reduce_input import with_result
from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.hive.review import must_review
from hypervisor.inputs.items import item_of
from hypervisor.queue.context import Context
from hypervisor.queue.task import Batch, Task
from hypervisor.runs.spec import spec_from


def prompt_of(hv: Context, task: Task, batch: Batch | None) -> str:
    """What an agent would be told about a task in a new session now; "" if none is to do it."""
    if batch is None or not isinstance(batch.spec, dict) or not batch.spec.get("agent"):
        return ""
    try:
        spec = spec_from(batch.spec)
        if spec.agent is None or spec.agent.mode != "push":
            return ""
        item = with_result(hv, task, item_of(task), spec)
        return Prompts(spec, FOLDER).write(task, item, context_of(hv.store, task, must_review(hv)))
    except (InvalidInput, NotFound):  # the item does not fit, or a task it builds on is gone
        return ""
