"""A run started from Python: iterating over its results, waiting for it, cancelling it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from hypervisor.batches.submit import Submitted
from hypervisor.core.errors import BatchPaused, TaskFailed, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.queue import lifecycle, steer
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import OPEN
from hypervisor.queue.pause import BATCH
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Json, Task, TaskFilter
from hypervisor.runs import sql
from hypervisor.runs.finished import FINISHED, FinishedTasks
from hypervisor.runs.rerun import is_by_person
from hypervisor.runs.supervise import supervise

ENDED = (*FINISHED, lifecycle.CANCELLED)
PAGE = 1_000
MIN_PAUSE, MAX_PAUSE = 0.01, 0.25  # seconds between reads of the store
SUPERVISOR_CHECK = 1.0  # seconds between checks that a supervisor is running


def seconds_of(timeout: float | timedelta) -> float:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout


class ItemResult(NamedTuple):
    """The result of one item: `result` if it is done, else the `reason`."""

    item: Any
    task: str
    state: str
    result: Json = None
    reason: str | None = None

    @property
    def ok(self) -> bool:
        return self.state == lifecycle.DONE


class Run:
    """Items that run in the background. They continue if this process ends.

    Iterating yields an `ItemResult` for each item as soon as there is one, including failed items.
    Iterating again yields the same results. `failed` and `is_finished` do not read the store.
    """

    def __init__(
        self,
        hv: Context,
        submitted: Submitted,
        items: Mapping[str, Any],
        *,
        after: int,
        ordered: bool = False,
    ) -> None:
        """`items` by the keys of their tasks; `after` is the last event before the run."""
        self.batch = submitted.batch
        self._hv, self._items, self._ordered = hv, items, ordered
        self._keys = list(items)
        self._results: dict[str, ItemResult] = {}  # by key, as they finished
        self._in_order: list[ItemResult] = []
        self._finished = FinishedTasks(hv, self.batch.id, after, ENDED)
        self._checked = time.monotonic()
        if submitted.already_done or submitted.still_open:
            self._add(self._tasks(ENDED))

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<Run {self.batch.name!r}: {len(self._results)} of {len(self)} finished>"

    def __iter__(self) -> Iterator[ItemResult]:
        for position in range(len(self)):
            while (result := self.result_at(position)) is None:
                self._wait_for_more(None)
            yield result

    def result_at(self, position: int) -> ItemResult | None:
        """The result that iterating yields at this position; None if there is none yet."""
        if self._ordered:
            return self._results.get(self._keys[position])
        return self._in_order[position] if position < len(self._in_order) else None

    @property
    def is_finished(self) -> bool:
        """Whether there is a result for every item."""
        return len(self._results) == len(self._items)

    @property
    def failed(self) -> tuple[ItemResult, ...]:
        """The items that have failed so far."""
        return tuple(result for result in self._in_order if not result.ok)

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until all items have finished, at most `timeout`; returns whether they have."""
        deadline = None if timeout is None else time.monotonic() + seconds_of(timeout)
        self.look()
        while not self.is_finished:
            if not self._wait_for_more(deadline):
                return False
        return True

    def results(self) -> list[Json]:
        """Wait, and get the results in the order of the items.

        TaskFailed: an item did not succeed.
        """
        self.wait()
        for key in self._items:
            result = self._results[key]
            if not result.ok:
                raise TaskFailed(result.task, result.item, result.state, result.reason)
        return [self._results[key].result for key in self._items]

    def cancel(self, reason: str = "") -> int:
        """Cancel the items that have not finished; returns how many. Running ones are stopped."""
        cancelled = 0
        for task in list(self._tasks(OPEN)):
            if task.key in self._items:
                with suppress(WrongState):  # it has just finished
                    steer.cancel(self._hv, task.id, reason)
                    cancelled += 1
        return cancelled

    def look(self) -> bool:
        """Read new results without waiting; returns whether there are any."""
        before = len(self._in_order)
        self._add(self._finished.new())
        if not self.is_finished and time.monotonic() - self._checked > SUPERVISOR_CHECK:
            self._checked = time.monotonic()
            self._check_progress()
        return len(self._in_order) > before

    def _wait_for_more(self, deadline: float | None) -> bool:
        began = time.monotonic()
        while not self.look():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return False
            pause = min(max((now - began) / 10, MIN_PAUSE), MAX_PAUSE)
            time.sleep(pause if deadline is None else min(pause, deadline - now))
        return True

    def _check_progress(self) -> None:
        """BatchPaused: a worker or the supervisor has given up on the batch."""
        supervise(self._hv, wait=False)
        pauses = self._hv.store.read(pauses_sql.pauses)
        own = [pause for pause in pauses if (pause.scope, pause.name) == (BATCH, self.batch.id)]
        final = [pause for pause in own if not is_by_person(pause)]
        if final and not self._hv.store.read(sql.any_running, self.batch.id):
            self._add(self._finished.new())
            if not self.is_finished:
                raise BatchPaused(
                    self.batch.name,
                    f"batch {self.batch.name} was paused: {final[0].reason}. "
                    f"{len(self._results)} of {len(self)} items have finished; "
                    "run it again under the same name to continue.",
                )

    def _tasks(self, states: tuple[str, ...]) -> Iterator[Task]:
        filter, before = TaskFilter(states, self.batch.id), None
        while page := self._hv.store.read(queries.list_tasks, filter, PAGE, before):
            yield from page
            before = page[-1].id

    def _add(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            key = task.key or ""
            if key in self._items and key not in self._results and task.state in ENDED:
                reason = None if task.state == lifecycle.DONE else task.reason
                result = ItemResult(self._items[key], task.id, task.state, task.result, reason)
                self._results[key] = result
                self._in_order.append(result)
