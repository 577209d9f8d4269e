"""The tasks that have finished last."""

from __future__ import annotations

import threading
from collections import Counter

from hypervisor.core.records import NamedTuple
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


class Count(NamedTuple):
    """How many have finished, by state: a lower bound unless `is_complete`."""

    states: dict[str, int]
    is_complete: bool


class Ended(NamedTuple):
    seq: int
    at: int
    task: str
    state: str  # empty: the event ended nothing


class Recent:
    """The end of the log. It is read once, then only what is new."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Ended] = []

    def rolled_back(self) -> None:
        """Events that were read are committed."""

    def read(self, hv: Context) -> list[Ended]:
        with self._lock:
            new = events(hv, self._events[-1].seq, MAX_READ) if self._events else ()
            if len(new) >= MAX_READ or not self._events:
                self._events = []
                new = events(hv, max(end_of_log(hv) - MAX_READ, 0), MAX_READ)
            self._events += map(_ended, new)
            del self._events[:-MAX_READ]
            return self._events.copy()


def _ended(event: Event) -> Ended:
    is_end = event.task and event.state in ENDED
    return Ended(event.seq, event.at, event.task or "", event.state or "" if is_end else "")


def finished(hv: Context, count: int = 12) -> tuple[Finished, ...]:
    """List the tasks that have finished last, newest first, as far as they are at the end of the
    log."""
    latest = list(_latest(hv.store.caches.of(Recent).read(hv)).items())[:count]
    tasks = {task.id: task for task in hv.store.read(queries.tasks, [id for id, _ in latest])}
    return tuple(
        Finished(event.at, tasks[id])  # others were deleted with their batches
        for id, event in latest
        if id in tasks and tasks[id].state in ENDED
    )


def finished_since(hv: Context, since: int) -> Count:
    """Count the tasks that have finished since a time, as far back as the end of the log goes."""
    read = hv.store.caches.of(Recent).read(hv)
    states = Counter(event.state for event in _latest(read).values() if event.at > since)
    return Count(dict(states), len(read) < MAX_READ or read[0].at <= since)


def _latest(read: list[Ended]) -> dict[str, Ended]:
    """How each task ended last, newest first."""
    latest: dict[str, Ended] = {}
    for event in reversed(read):
        if event.state:
            latest.setdefault(event.task, event)
    return latest
