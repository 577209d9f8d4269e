"""A person's decision about a task in review, whose commits could not be merged without one."""

from __future__ import annotations

from hypervisor.core import validate
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
