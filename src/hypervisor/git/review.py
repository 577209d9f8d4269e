"""A person's decision about a task in review, whose commits could not be merged without one."""

from __future__ import annotations

from typing import Literal

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.context import Context
from hypervisor.queue.sql import merging
from hypervisor.queue.steer import Moved
from hypervisor.runs.supervise import supervise


def approve(hv: Context, task: str, reason: str = "", now: int | None = None) -> Moved:
    """Approve a task in review: its commits go back into the merge queue."""
    task_id = hv.resolve(task)
    validate.text("the reason", reason)
    state = hv.store.write(merging.approve, task_id, reason, hv.actor, now=hv.at(now))
    hv.tasks_changed([task_id])
    supervise(hv, wait=False)  # the last one may have left
    return Moved(task_id, state)


def reject(hv: Context, task: str, reason: str = "", now: int | None = None) -> Moved:
    """Reject a task in review: it fails; its commits are kept but not merged."""
    task_id = hv.resolve(task)
    validate.text("the reason", reason)
    state = hv.store.write(merging.reject, task_id, reason, hv.actor, now=hv.at(now))
    hv.tasks_changed([task_id])
    return Moved(task_id, state)


def decide_as_agent(
    hv: Context, task: str, decision: Literal["approve", "reject"], reason: str = ""
) -> Moved:
    """Approve or reject a task for an agent. A task is in review because a person must look at it,
    so this must be allowed in config.toml."""
    if not hv.settings.agents_may_approve:
        name = hv.resolve(task)
        raise InvalidInput(
            f"only a person may {decision} a task in review: `hv {decision} {name}`, or the "
            "dashboard. agents_may_approve = true under [merge] in config.toml lets agents do it. "
            "Nothing was changed."
        )
    return (approve if decision == "approve" else reject)(hv, task, reason)
