"""Steering tasks from outside a claim: what a person or a supervising agent decides."""

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.times import LATEST, time_ms
from hypervisor.queue.context import Context
from hypervisor.queue.lane import check_priority
from hypervisor.queue.sql import steer
from hypervisor.queue.sql import stops as stops_sql
from hypervisor.queue.task import Changes


class Moved(NamedTuple):
    """A task and the state it is in now."""

    task: str
    state: str


def cancel(hv: Context, task: str, reason: str = "", now: int | None = None) -> Moved:
    """Cancel a task; a running attempt is stopped first, an external claim is revoked at once."""
    task_id = hv.resolve(task)
    validate.text("the reason", reason)
    if hv.store.write(stops_sql.ask_stop, task_id, "cancel", reason, hv.actor, now=hv.at(now)):
        return Moved(task_id, "stopping")
    state = hv.store.write(steer.cancel, task_id, reason, hv.actor, hv.at(now))
    hv.tasks_changed([task_id])
    return Moved(task_id, state)


def retry(hv: Context, task: str, reason: str = "", now: int | None = None) -> Moved:
    """Put a finished, failed, cancelled or blocked task back into the queue; history is kept."""
    task_id = hv.resolve(task)
    validate.text("the reason", reason)
    state = hv.store.write(steer.requeue, task_id, "reopen", reason, hv.actor, now=hv.at(now))
    hv.tasks_changed([task_id])
    return Moved(task_id, state)


def accept(hv: Context, task: str, now: int | None = None) -> Moved:
    """Take a task out of the inbox into the queue."""
    task_id = hv.resolve(task)
    return Moved(
        task_id, hv.store.write(steer.requeue, task_id, "accept", "", hv.actor, now=hv.at(now))
    )


def take_back(hv: Context, task: str, reason: str = "", now: int | None = None) -> Moved:
    """End another worker's claim, at your own risk; the task goes back into the queue."""
    task_id = hv.resolve(task)
    validate.text("the reason", reason)
    why = f"taken back by {hv.actor}" + (f": {reason}" if reason else "")
    return Moved(task_id, hv.store.write(steer.revoke_claim, task_id, why, hv.actor, hv.at(now)))


def update(hv: Context, task: str, changes: Changes, now: int | None = None) -> Moved:
    """Change a task's text, priority, requirements, dependencies or start time."""
    if all(value is None for value in changes):
        raise InvalidInput("nothing to change: name at least one field.")
    task_id = hv.resolve(task)
    return Moved(
        task_id, hv.store.write(steer.update, task_id, _checked(hv, changes), hv.actor, hv.at(now))
    )


def _checked(hv: Context, changes: Changes) -> Changes:
    if changes.title is not None:
        validate.title(changes.title)
    if changes.body is not None:
        validate.text("the body", changes.body)
    if changes.type is not None:
        validate.name("the type", changes.type)
    if changes.priority is not None:
        check_priority(changes.priority)
    for field, value in (("the branch", changes.branch), ("the assignee", changes.assignee)):
        if value is not None:
            validate.name(field, value, empty=True)
    if changes.start_at is not None:
        start_at = validate.number("the start time", time_ms(changes.start_at), 0, LATEST)
        changes = changes._replace(start_at=start_at)
    if changes.retries is not None:
        validate.number("retries", changes.retries, 0, 1_000)
    validate.json_value("data", changes.data)
    return changes._replace(
        requires=None if changes.requires is None else validate.names("requires", changes.requires),
        after=None
        if changes.after is None
        else tuple(dict.fromkeys(hv.resolve(dependency) for dependency in changes.after)),
    )
