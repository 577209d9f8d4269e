"""Tasks as they finish, in the order of finishing or in the order of the items."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from hypervisor.queue import lifecycle
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Task
from hypervisor.runs import sql

FINISHED = (lifecycle.DONE, lifecycle.FAILED, lifecycle.BLOCKED, lifecycle.REVIEW)
PAGE = 1_000


class FinishedTasks:
    """Reads the events of a batch after the event number `after`."""

    def __init__(
        self, hv: Context, batch: str, after: int, states: tuple[str, ...] = FINISHED
    ) -> None:
        self._hv, self._batch, self._last, self._states = hv, batch, after, states

    def new(self) -> Iterator[Task]:
        """The tasks that have finished since the last call, in that order."""
        while page := queries.events(self._hv.store, self._last, PAGE):
            self._last = page[-1].seq
            ids = dict.fromkeys(
                event.task
                for event in page
                if event.batch == self._batch and event.task and event.state in self._states
            )
            tasks = {task.id: task for task in self._hv.store.read(queries.tasks, list(ids))}
            yield from (tasks[id] for id in ids if id in tasks)


class ItemOrder:
    """Returns finished tasks in the order of their items."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._expected = deque(ids)
        self._held: dict[str, Task] = {}

    def add(self, task: Task) -> Iterator[Task]:
        """The tasks that can be returned now."""
        self._held[task.id] = task
        while self._expected and self._expected[0] in self._held:
            yield self._held.pop(self._expected.popleft())

    def rest(self) -> Iterator[Task]:
        """The remaining tasks: those before them did not finish, or they were not expected."""
        yield from (self._held[id] for id in sorted(self._held))
        self._held = {}


def unfinished_ids(hv: Context, batch: str, since: int) -> Iterator[str]:
    """The tasks of a batch that had not ended at `since`, in the order of their items."""
    after = ""
    while page := hv.store.read(sql.not_ended_before, batch, since, after, PAGE):
        yield from page
        after = page[-1]
