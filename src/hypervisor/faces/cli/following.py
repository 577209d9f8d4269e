"""Following a run to its end: progress while it lasts, the result when it is over.

Ctrl-C once drains (what runs may finish), twice stops what runs and puts it
back, three times does not wait for that either. The work itself is the
supervisor's; if that dies, another is started.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from hypervisor.domain.errors import EXIT_CHECKPOINT, EXIT_OK, EXIT_UNSUCCESSFUL
from hypervisor.domain.run import BATCH, Pause
from hypervisor.domain.task import Task
from hypervisor.faces.cli import result
from hypervisor.faces.cli.output import plain, print_json, say, wants_colour
from hypervisor.faces.cli.picture import Scene, render
from hypervisor.faces.cli.progress import OPEN, Counts, Pace, RunCounter, count
from hypervisor.faces.cli.views import FRAME, View, view_for
from hypervisor.operations import run as running
from hypervisor.operations.at_work import live_sessions
from hypervisor.operations.context import Context
from hypervisor.operations.look import list_tasks
from hypervisor.operations.run import Status, Submitted

INTERRUPTED = 130
QUICKEST, CALM, SLOWEST = 0.05, 0.25, 2.0
CALMING_DOWN = 50  # a run that has lasted so many looks long may be looked at as seldom
LOOKS_PER_COST = 15  # looking shall cost at most a fifteenth of the time
SUPERVISOR_LOOK = 1.0
MOST_TOLD = 20
MOST_FAILURES = 500
OURS = ("supervisor", "worker-")
LAST_WORD = 15.0  # seconds


def follow(hv: Context, submitted: Submitted, as_json: bool, quiet: bool) -> int:
    """Show progress until the batch has nothing more to do. Returns the exit code."""
    last: Status | None = None
    with Interrupts() as interrupts:
        with view_for(quiet or as_json) as view:
            if submitted.to_do:
                last = _watch(hv, submitted, view, interrupts)
                _wait_for_agents(hv, submitted, interrupts)
        hv.launcher.forget_environment(submitted.batch.id)
        if as_json:
            summary = plain(running.summary(hv, submitted.batch.id))
            print_json({**summary, "skipped": submitted.already_done})
        elif last is not None:
            _report(hv, submitted, last)
    if interrupts.count:
        return INTERRUPTED
    if last is not None and last.checkpoint is not None:
        return EXIT_CHECKPOINT
    return EXIT_UNSUCCESSFUL if running.unsuccessful(hv, submitted) else EXIT_OK


def watch(hv: Context, batch: str | None, view: View) -> None:
    """Show a batch until it has ended, or everything until Ctrl-C."""
    watcher = Watcher(hv, batch, view, hv.now(), lambda s: count(s.stats.states, s.attempts))
    while True:
        if watcher.is_due():
            status = watcher.look()
            if batch is not None and (not open_tasks(status) or _is_at_checkpoint(status)):
                watcher.show(0)
                return
        watcher.show(0)
        watcher.rest()


class Watcher:
    """Looks as often as it may cost and shows what it saw, with the clock going on between."""

    def __init__(
        self, hv: Context, batch: str | None, view: View, since: int,
        counts: Callable[[Status], Counts],
    ) -> None:  # fmt: skip
        self.hv, self.batch, self.view, self.since = hv, batch, view, since
        self._counts = counts
        self._pace = Pace()
        self._failures = Failures(hv, batch, since)
        self._scene: Scene | None = None
        self._began = self._next = time.monotonic()
        self._offset = since - self._began * 1000

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def look(self) -> Status:
        began = time.monotonic()
        status = running.status(self.hv, self.batch)
        counts = self._counts(status)
        now = self.hv.now()
        self._offset = now - time.monotonic() * 1000
        self._pace.note(now, counts, status.attempts)
        self._tell_failures(counts)
        busy = counts.running or not counts.open or status.brakes or status.pauses
        idle_since = None if busy else (self._scene and self._scene.idle_since) or now
        self._scene = Scene(
            status, counts, now, self.since, self._pace.per_second, self._pace.left, 0, idle_since
        )
        after = time.monotonic()
        calm = min(max((after - self._began) / CALMING_DOWN, QUICKEST), CALM)
        self._next = after + min(max((after - began) * LOOKS_PER_COST, calm), SLOWEST)
        return status

    def show(self, interrupts: int) -> None:
        if self._scene is not None:
            now = int(time.monotonic() * 1000 + self._offset)
            self.view.show(self._scene._replace(now=now, interrupts=interrupts))

    def rest(self) -> None:
        """Until there is something to do: look, or move the clock on."""
        time.sleep(min(max(self._next - time.monotonic(), 0.005), FRAME))

    def _tell_failures(self, counts: Counts) -> None:
        new, more = self._failures.new(counts.failed)
        if new or more:
            self.view.failed(new, more)


class Failures:
    """The tasks that fail from now on, told one by one up to a number."""

    def __init__(self, hv: Context, batch: str | None, since: int) -> None:
        self._hv, self._batch, self._since = hv, batch, since
        self._told: set[str] = set()
        self._count = 0

    def new(self, count: int) -> tuple[list[Task], bool]:
        """Those not told yet, and whether from now on they are only counted."""
        if count == self._count or len(self._told) >= MOST_TOLD:
            self._count = count
            return [], False
        self._count = count
        found = failed_since(self._hv, self._batch, self._since, ("failed",))
        fresh = [task for task in found if task.id not in self._told]
        told = fresh[: MOST_TOLD - len(self._told)]
        self._told |= {task.id for task in told}
        return told, len(self._told) >= MOST_TOLD


def failed_since(hv: Context, batch: str | None, since: int, states: tuple[str, ...]) -> list[Task]:
    """Tasks that ended badly since then, in the order in which they did."""
    found = list_tasks(hv, states, batch, limit=MOST_FAILURES)
    recent = [task for task in found if task.updated_at >= since]
    return sorted(recent, key=lambda task: (task.updated_at, task.id))


class Interrupts:
    """Counts how often somebody asked for an end, by Ctrl-C or by closing the terminal."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._count)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _count(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


def _watch(hv: Context, submitted: Submitted, view: View, interrupts: Interrupts) -> Status:
    counter = RunCounter(submitted)

    def counts(status: Status) -> Counts:
        return counter.count(status.stats, status.attempts, running.outcome(hv, submitted))

    batch = submitted.batch.id
    watcher = Watcher(hv, batch, view, submitted.since, counts)
    handled, looked_for_supervisor = 0, time.monotonic()
    status = watcher.look()
    while not _is_over(status, handled > 0) and interrupts.count <= 2:
        if interrupts.count > handled:
            handled = interrupts.count
            _interrupt(hv, batch, handled)
        watcher.show(interrupts.count)
        if time.monotonic() - looked_for_supervisor > SUPERVISOR_LOOK:
            looked_for_supervisor = time.monotonic()
            if status.supervisor is None:
                running.supervise(hv)
        watcher.rest()
        if watcher.is_due():
            status = watcher.look()
    return status


def _wait_for_agents(hv: Context, submitted: Submitted, interrupts: Interrupts) -> None:
    """An agent tells what it cost with its last word, which comes after its task has ended."""
    if not isinstance(submitted.batch.spec, dict) or not submitted.batch.spec.get("agent"):
        return
    deadline = time.monotonic() + LAST_WORD
    while not interrupts.count and time.monotonic() < deadline:
        if not live_sessions(hv, submitted.batch.id):
            return
        time.sleep(CALM)


def open_tasks(status: Status) -> int:
    """How many tasks are not over yet."""
    return sum(status.stats.states[state] for state in OPEN)


def _is_over(status: Status, interrupted: bool) -> bool:
    """Nothing is open, or nothing runs and nothing will until somebody runs it again."""
    if not open_tasks(status):
        return True
    if _is_at_checkpoint(status):
        return True
    over = bool(status.pauses) if interrupted else any(map(_is_final, status.pauses))
    return over and not status.stats.claimed


def _is_at_checkpoint(status: Status) -> bool:
    moves = status.stats.claimed or status.stats.states["active"]
    return status.checkpoint is not None and not moves


def _is_final(pause: Pause) -> bool:
    """A person's pause is waited for; one made by a run or by its supervisor ends the run."""
    by_the_run = pause.reason == running.INTERRUPTED or pause.actor.startswith(OURS)
    return pause.scope == BATCH and by_the_run


def _interrupt(hv: Context, batch: str, count: int) -> None:
    running.pause(hv, batch, reason=running.INTERRUPTED)
    if count > 1:
        running.stop_batch(hv, batch)


def _report(hv: Context, submitted: Submitted, last: Status) -> None:
    bad = failed_since(hv, submitted.batch.id, submitted.since, ("failed", "blocked", "review"))
    lines = result.lines(
        submitted, running.outcome(hv, submitted), open_tasks(last), last,
        running.summary(hv, submitted.batch.id, tasks=False), bad, hv.now() - submitted.since,
    )  # fmt: skip
    if isinstance(submitted.batch.spec, dict) and "write_back" in submitted.batch.spec:
        lines += result.unwritten(running.unwritten(hv, submitted), submitted.batch.name)
    gap = [""] if bad and sys.stdout.isatty() else []
    say(*gap, *(render(line, wants_colour()) for line in lines))
