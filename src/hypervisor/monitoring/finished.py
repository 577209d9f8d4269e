"""The tasks that have finished last."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hypervisor.core.errors import NotFound
from hypervisor.queue.context import Context
from hypervisor.queue.event import Event
from hypervisor.queue.queries import end_of_log, events
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Task

ENDED = ("done", "failed", "blocked", "review", "cancelled")
MAX_READ = 2_000  # events, from the end of the log


class Finished(NamedTuple):
    at: int
    task: Task


class Lately(NamedTuple):
    """The tasks that have finished last, newest first; and how many have finished since a time, by
    state: at least so many, unless `is_complete`."""

    tasks: tuple[Finished, ...]
    since: dict[str, int]
    is_complete: bool


def finished(hv: Context, since: int | None = None, count: int = 12) -> Lately:
    """List the tasks that have finished last, as far as they are at the end of the log."""
    last = end_of_log(hv)
    read = events(hv, max(last - MAX_READ, 0), MAX_READ)
    latest: dict[str, Event] = {}
    for event in reversed(read):
        if event.task and event.state in ENDED:
            latest.setdefault(event.task, event)
    shown = [(event.at, _task(hv, task)) for task, event in list(latest.items())[:count]]
    states = Counter(
        event.state or "" for event in latest.values() if since is not None and event.at > since
    )
    return Lately(
        tuple(Finished(at, task) for at, task in shown if task and task.state in ENDED),
        dict(states),
        since is None or len(read) < MAX_READ or read[0].at <= since,
    )


def _task(hv: Context, task: str) -> Task | None:
    try:
        return hv.store.read(queries.task, task)
    except NotFound:  # deleted with its batch
        return None
