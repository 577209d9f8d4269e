"""Steering tasks from outside a claim: what a person or a supervising agent decides."""

from typing import NamedTuple

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.task_files.write_back import write_back
from hypervisor.queue.context import Context
from hypervisor.queue.priority import check_priority
from hypervisor.queue.sql import steer
from hypervisor.queue.task import Changes
from hypervisor.runs import sql as runs_sql


class Moved(NamedTuple):
    """A task and the state it is in now."""

    task: str
    state: str


def cancel(hv: Context, task: str, reason: str = "", now: int | None = None) -> Moved:
    """Cancel a task; a running attempt is stopped first, an external claim is revoked at once."""
    found = hv.resolve(task)
    validate.text("the reason", reason)
    if hv.store.write(runs_sql.ask_stop, found, "cancel", reason, hv.actor, now=hv.at(now)):
        return Moved(found, "stopping")
    state = hv.store.write(steer.cancel, found, reason, hv.actor, hv.at(now))
    write_back(hv, found)
    return Moved(found, state)


def retry(hv: Context, task: str, reason: str = "", now: int | None = None) -> Moved:
    """Requeue a finished, failed, cancelled or blocked task; its history is kept."""
    found = hv.resolve(task)
    validate.text("the reason", reason)
    state = hv.store.write(steer.requeue, found, "reopen", reason, hv.actor, now=hv.at(now))
    write_back(hv, found)
    return Moved(found, state)


def accept(hv: Context, task: str, now: int | None = None) -> Moved:
    """Take a task out of the inbox into the queue."""
    found = hv.resolve(task)
    return Moved(
        found, hv.store.write(steer.requeue, found, "accept", "", hv.actor, now=hv.at(now))
    )


def take_back(hv: Context, task: str, reason: str = "", now: int | None = None) -> Moved:
    """End somebody else's claim on your own responsibility; the task goes back unharmed."""
    found = hv.resolve(task)
    validate.text("the reason", reason)
    why = f"taken back by {hv.actor}" + (f": {reason}" if reason else "")
    return Moved(found, hv.store.write(steer.revoke_claim, found, why, hv.actor, hv.at(now)))


def update(hv: Context, task: str, changes: Changes, now: int | None = None) -> Moved:
    """Change a task's text, priority, requirements, dependencies or start time."""
    if all(value is None for value in changes):
        raise InvalidInput("nothing to change was given.")
    found = hv.resolve(task)
    return Moved(
        found, hv.store.write(steer.update, found, _checked(hv, changes), hv.actor, hv.at(now))
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
    for what, value in (("the branch", changes.branch), ("the assignee", changes.assignee)):
        if value is not None:
            validate.name(what, value, empty=True)
    if changes.start_at is not None:
        validate.number("the start time", changes.start_at, 0, 253_402_300_799_000)
    if changes.retries is not None:
        validate.number("retries", changes.retries, 0, 1_000)
    validate.json_value("data", changes.data)
    return changes._replace(
        requires=None if changes.requires is None else validate.names("requires", changes.requires),
        after=None
        if changes.after is None
        else tuple(dict.fromkeys(hv.resolve(each) for each in changes.after)),
    )
