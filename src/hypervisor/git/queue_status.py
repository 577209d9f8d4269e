"""The state of the merge queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypervisor.core.records import NamedTuple
from hypervisor.git import sql
from hypervisor.git.verify_output import output_in
from hypervisor.queue.sql import merging, queries

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.task import Task


class QueuedTask(NamedTuple):
    """`round`: how often it came back before. `since` is in milliseconds."""

    task: str
    title: str
    batch: str
    attempt: int
    round: int
    since: int


class LaneStatus(NamedTuple):
    """`lane` is "" for tasks whose commits are still being collected. `paused` says why the lane
    does not move, and `doing` what happens in it right now."""

    lane: str
    repository: str
    mode: str
    target: str
    paused: str
    doing: str
    tasks: tuple[QueuedTask, ...]


class LandedTask(NamedTuple):
    """A task and where its work was merged: `commit` and `target` are "" if it was not."""

    task: str
    title: str
    state: str
    reason: str
    commit: str
    target: str
    verified: bool


def landed_tasks(hv: Context, tasks: Sequence[str]) -> list[LandedTask]:
    """Where these tasks have landed, by now."""
    return [_landed(hv, hv.store.read(queries.task, task)) for task in tasks]


def changed_nothing(hv: Context, task: Task) -> bool:
    """Whether a task is done without any change."""
    landing = hv.store.read(merging.landing, task.id, task.attempts)
    return task.state == "done" and landing is not None and not landing.commit


def _landed(hv: Context, task: Task) -> LandedTask:
    landing = hv.store.read(merging.landing, task.id, task.attempts)
    where = (landing.commit, landing.target, landing.verified) if landing else ("", "", False)
    return LandedTask(task.id, task.title, task.state, task.reason or "", *where)


def failed_output(hv: Context, task: Task) -> list[str]:
    """The end of what the last verification printed, if it failed because of this task."""
    entry = hv.store.read(sql.last_entry, task.id, task.attempts + 1)
    return output_in(entry.reason) if entry and task.state != "done" else []


def merge_queue(hv: Context, batch: str | None = None) -> list[LaneStatus]:
    """Show the merge queue: lanes, what waits in them, and why one is paused."""
    wanted = hv.store.read(queries.batch, batch).id if batch is not None else None
    submissions = hv.store.read(merging.submitted)
    entries = {(entry.task, entry.attempt): entry for entry in hv.store.read(sql.queued)}
    by_lane: dict[str, list[QueuedTask]] = {}
    for submission in submissions:
        entry = entries.get((submission.task, submission.attempt))
        if wanted is None or submission.batch == wanted:
            task = hv.store.read(queries.task, submission.task)
            row = QueuedTask(
                task.id,
                task.title,
                submission.batch,
                submission.attempt,
                entry.round if entry else 0,
                submission.at,
            )
            by_lane.setdefault(entry.lane if entry else "", []).append(row)
    lanes = [
        LaneStatus(*lane[:2], *lane[3:6], lane.doing, tuple(tasks))
        for lane in hv.store.read(sql.merge_lanes)
        if (tasks := by_lane.get(lane.id))
    ]
    collecting = by_lane.get("")
    first = [LaneStatus("", "", "", "", "", "", tuple(collecting))] if collecting else []
    return [*first, *lanes]


def exits(hv: Context, before: list[LaneStatus], after: list[LaneStatus]) -> list[LandedTask]:
    """Where the tasks went that were in the queue before, and are not any more."""
    still = {(task.task, task.attempt) for lane in after for task in lane.tasks}
    left = [task for lane in before for task in lane.tasks]
    return [_exit(hv, task) for task in left if (task.task, task.attempt) not in still]


def _exit(hv: Context, task: QueuedTask) -> LandedTask:
    """It may be worked on again by now: `reason` is then why its attempt was not merged."""
    landed = _landed(hv, hv.store.read(queries.task, task.task))
    entry = hv.store.read(sql.entry, task.task, task.attempt)
    return landed._replace(reason=landed.reason or (entry.reason if entry else ""))
