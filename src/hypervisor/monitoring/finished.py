"""The tasks that have finished last."""

from __future__ import annotations

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


def finished(hv: Context, count: int = 12) -> tuple[Finished, ...]:
    """List the tasks that have finished last, newest first, as far as they are at the end of the
    log."""
    last = end_of_log(hv)
    latest: dict[str, Event] = {}
    for event in reversed(events(hv, max(last - MAX_READ, 0), MAX_READ)):
        if event.task and event.state in ENDED and len(latest) < count:
            latest.setdefault(event.task, event)
    rows = ((event.at, _task(hv, task)) for task, event in latest.items())
    return tuple(Finished(at, task) for at, task in rows if task and task.state in ENDED)


def _task(hv: Context, task: str) -> Task | None:
    try:
        return hv.store.read(queries.task, task)
    except NotFound:  # deleted with its batch
        return None
