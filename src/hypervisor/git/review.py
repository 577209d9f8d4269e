"""A person's decision about a task in review, whose commits could not be merged without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, WrongState
from hypervisor.queue.context import Context
from hypervisor.queue.sql import merging, queries
from hypervisor.queue.steer import Moved
from hypervisor.queue.task import Task
from hypervisor.runs.supervise import supervise
from hypervisor.store.database import Session


def approve(
    hv: Context, task: str, reason: str = "", now: int | None = None, *, shown: str = ""
) -> Moved:
    """Approve a task in review: its commits go back into the merge queue.

    `shown` is the digest of the task that the decision is about; if it has changed since, the
    decision is refused."""
    moved = _decide(hv, merging.approve, task, reason, shown=shown, now=hv.at(now))
    supervise(hv, wait=False)  # the last one may have left
    return moved


def reject(
    hv: Context, task: str, reason: str = "", now: int | None = None, *, shown: str = ""
) -> Moved:
    """Reject a task in review: it fails; its commits are kept but not merged.

    `shown` as in `approve`."""
    return _decide(hv, merging.reject, task, reason, shown=shown, now=hv.at(now))


def review_digest(task: Task) -> str:
    """Changes with everything a decision about a task in review depends on."""
    from hypervisor.batches.plans.action import digest

    return digest(task.id, task.state, task.attempts, task.reason, task.updated_at)


def _decide(
    hv: Context, change: Callable[..., str], task: str, reason: str, *, shown: str, now: int
) -> Moved:
    task_id = hv.resolve(task)
    validate.text("the reason", reason)

    def decide(session: Session) -> str:
        session.lock("keys")  # before the task is read, so that it stays as it is
        if shown and review_digest(queries.task(session, task_id)) != shown:
            raise WrongState(
                f"{task_id} has changed since it was shown. Nothing was decided; look at it again."
            )
        return change(session, task_id, reason, hv.actor, now=now)

    state = hv.store.write(decide)
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
