"""Follows batches to their end: what to read and when, when it is over, what Ctrl-C does.

It prints nothing. The supervisor does the work; if it dies, another one is started.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from hypervisor.batches import submit
from hypervisor.batches.submit import Submitted
from hypervisor.core.records import NamedTuple
from hypervisor.monitoring import status as statuses
from hypervisor.monitoring.progress import Counts, Pace, RunCounter, count
from hypervisor.monitoring.snapshot import Snapshot, open_tasks, paused_batches
from hypervisor.monitoring.status import Status, combine
from hypervisor.queue import lifecycle
from hypervisor.queue.context import Context
from hypervisor.queue.pause import BATCH, INTERRUPTED, Pause
from hypervisor.queue.queries import list_tasks
from hypervisor.queue.task import Task
from hypervisor.runs import sql
from hypervisor.runs.rerun import is_by_person
from hypervisor.runs.supervise import supervise

FRAME = 0.2  # seconds between two snapshots at most
QUICKEST, CALM, SLOWEST = 0.02, 0.25, 2.0  # seconds between two looks
BEAT = 0.02  # how often to ask whether anything still runs; …
BEATS = 100  # … less often once the run is older than this many beats
CALMING_DOWN = 50  # look less often once the run is older than this many looks
LOOKS_PER_COST = 15  # looking may take at most a fifteenth of the time
FAR = 1_000  # milliseconds: with more left than this, wait longer
SUPERVISOR_CHECK = 1.0
MAX_REPORTED = 20
MAX_FAILURES = 500
FailureListener = Callable[[Sequence[Task], bool], None]


class Target(NamedTuple):
    """What is followed: batches since a time, and how their tasks are counted.

    The reduce of a pipeline waits until it is released by `release_reduce`.
    """

    batches: tuple[str, ...] | None  # None: everything
    since: int
    counts: Callable[[Status], Counts] = lambda status: count(status.stats.states, status.attempts)
    is_reduce_released: Callable[[], bool] = lambda: True
    release_reduce: Callable[[], object] = lambda: None


class Interrupts:
    """Counts requests to end: Ctrl-C, SIGTERM, or a closed terminal."""

    def __init__(self) -> None:
        self.count = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._previous[number] = signal.signal(number, self._count)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _count(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


class Monitor:
    """Reads the state of a target as often as is cheap; only the clock moves on in between.

    Without `on_failure`, details of failures are not read. `eager`: a person is watching, so new
    attempts should show soon. `after_look` is called after each read.
    """

    last: Snapshot

    def __init__(
        self,
        hv: Context,
        target: Target,
        on_failure: FailureListener | None = None,
        *,
        eager: bool = False,
        after_look: Callable[[], None] = lambda: None,
    ) -> None:
        self.hv, self.target, self.eager = hv, target, eager
        self._after_look = after_look
        self._failures = Failures(hv, target, on_failure) if on_failure else None
        self._pace = Pace()
        self._idle_since: int | None = None
        self._is_running = False  # something ran when last asked
        self._beat = BEAT
        self._began = self._next = time.monotonic()
        self._offset = target.since - self._began * 1000

    @property
    def reported(self) -> frozenset[str]:
        """The tasks whose failure was reported."""
        return frozenset(self._failures.reported) if self._failures else frozenset()

    def follow(self, interrupts: Interrupts) -> Iterator[Snapshot]:
        """Snapshots until nothing more will run. One interrupt drains, two stop running attempts,
        three end without waiting for that."""
        handled, checked = 0, time.monotonic()
        self.look()
        while not self._is_over(handled > 0) and interrupts.count <= 2:
            if interrupts.count > handled:
                handled = interrupts.count
                self._interrupt(handled)
            yield self.current(interrupts.count)
            if time.monotonic() - checked > SUPERVISOR_CHECK:
                checked = time.monotonic()
                if self.last.status.supervisor is None:
                    supervise(self.hv)
            self.rest()
            if self.is_due():
                self.look()

    def watch(self) -> Iterator[Snapshot]:
        """Snapshots until the batches are finished; forever if everything is watched. Changes
        nothing."""
        while True:
            finished = self.is_due() and self.look().is_finished and self.target.batches
            yield self.current(0)
            if finished:
                return
            self.rest()

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def look(self) -> Snapshot:
        began = time.thread_time()  # waiting does not count: then others are at work
        target = self.target
        released = target.is_reduce_released()  # first: a release between the two looks is seen
        parts = [self._read(batch) for batch in target.batches or (None,)]
        status = combine(parts)
        stuck = stuck_tasks(self.hv, target.batches, status) if target.batches else 0
        counts, now = target.counts(status), self.hv.now()
        self._offset = now - time.monotonic() * 1000
        self._pace.note(now, counts, status.attempts)
        if self._failures:
            self._failures.report(counts.failed)
        busy = counts.running or not counts.open or status.cooldowns or status.pauses
        self._idle_since = None if busy else self._idle_since or now
        self.last = Snapshot(
            status,
            counts,
            now,
            target.since,
            self._pace.per_second,
            self._pace.left,
            idle_since=self._idle_since,
            batches=paused_batches(self.hv, status),
            parts=tuple(parts),
            stuck=stuck,
            reduce_released=released,
        )
        self._after_look()
        self._is_running = status.stats.claimed > 0
        self._next = time.monotonic() + self._pause(time.thread_time() - began)
        return self.last

    def _read(self, batch: str | None) -> Status:
        status = statuses.quick_status(self.hv, batch)
        if self._failures is None:
            return status
        return status._replace(attempts=statuses.attempts(self.hv, batch))

    def current(self, interrupts: int) -> Snapshot:
        """The last snapshot, with the clock moved on."""
        now = int(time.monotonic() * 1000 + self._offset)
        return self.last._replace(now=now, interrupts=interrupts)

    def rest(self) -> None:
        """Sleep until the next read, or until the clock must move on."""
        until = min(max(self._next, time.monotonic() + 0.005), time.monotonic() + FRAME)
        while (remaining := until - time.monotonic()) > 0:
            time.sleep(min(remaining, self._beat))
            if self._have_all_ended():
                self._next = time.monotonic()
                return

    def _pause(self, cost: float) -> float:
        """Seconds until the next read. If no one is watching there is no hurry: `_have_all_ended`
        notices the end."""
        if not self.eager and self._is_running:
            return SLOWEST
        left, age = self._pace.left, time.monotonic() - self._began
        calm = CALM if left and left > FAR else min(max(age / CALMING_DOWN, QUICKEST), CALM)
        return min(max(cost * LOOKS_PER_COST, calm), SLOWEST)

    def _have_all_ended(self) -> bool:
        """Whether all running attempts have ended and none has started: usually that is the end."""
        if self.target.batches is None:
            return False
        began = time.monotonic()
        is_running = any(
            self.hv.store.read(sql.any_running, batch) for batch in self.target.batches
        )
        age, cost = began - self._began, time.monotonic() - began
        self._beat = max(BEAT, cost * LOOKS_PER_COST, min(age / BEATS, FRAME))
        was_running, self._is_running = self._is_running, is_running
        return was_running and not is_running

    def _is_over(self, interrupted: bool) -> bool:
        """Whether nothing is open, or nothing will run by itself."""
        status = self.last.status
        if self.last.is_finished:
            return True
        stopped = bool(status.pauses) if interrupted else any(map(_is_final, status.pauses))
        if stopped and not status.stats.claimed:
            return True
        if not self.last.open:
            self.target.release_reduce()  # and look again: then the reduce may run
        return False

    def _interrupt(self, times: int) -> None:
        from hypervisor.runs import control

        batches = self.target.batches or ()
        for batch in batches:
            control.pause(self.hv, batch, reason=INTERRUPTED)
        for batch in batches if times > 1 else ():
            control.stop_batch(self.hv, batch)
        self.eager, self._next = True, time.monotonic()  # a person waits for the end


class Failures:
    """Reports tasks that fail from now on, one by one up to a number."""

    def __init__(self, hv: Context, target: Target, on_failure: FailureListener) -> None:
        self._hv, self._target, self._on_failure = hv, target, on_failure
        self.reported: set[str] = set()
        self._count = 0

    def report(self, count: int) -> None:
        """Report new failures if the count has changed."""
        changed, self._count = count != self._count, count
        if not changed or len(self.reported) >= MAX_REPORTED:
            return
        batches = self._target.batches or (None,)
        failed = ended_since(self._hv, batches, self._target.since, (lifecycle.FAILED,))
        new = [task for task in failed if task.id not in self.reported]
        new = new[: MAX_REPORTED - len(self.reported)]
        self.reported |= {task.id for task in new}
        only_counted = len(self.reported) >= MAX_REPORTED
        if new or only_counted:
            self._on_failure(new, only_counted)


def run_counts(hv: Context, parts: Sequence[Submitted]) -> Callable[[Status], Counts]:
    """A counter for the tasks of a run."""
    counter = RunCounter(*parts)
    return lambda status: counter.count(status.stats, status.attempts, submit.outcome(hv, *parts))


def ended_since(
    hv: Context, batches: Sequence[str | None], since: int, states: tuple[str, ...]
) -> list[Task]:
    """Tasks that have changed to these states since then, in that order."""
    pages = (list_tasks(hv, states, batch, limit=MAX_FAILURES) for batch in batches)
    recent = [task for page in pages for task in page if task.updated_at >= since]
    return sorted(recent, key=lambda task: (task.updated_at, task.id))


def stuck_tasks(hv: Context, batches: Sequence[str], status: Status) -> int:
    """How many tasks can never start; only read if nothing is running."""
    waiting = status.stats.states["waiting"]
    if not waiting or open_tasks(status) > waiting:
        return 0
    stuck = hv.store.read(sql.stuck, batches)
    return sum(stuck.get(batch, 0) for batch in batches)


def _is_final(pause: Pause) -> bool:
    """Whether a pause ends the run: not one that was set by a person."""
    return pause.scope == BATCH and not is_by_person(pause)
