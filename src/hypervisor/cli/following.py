"""Following a run to its end: progress while it lasts, the result when it is over.

Ctrl-C once drains (what runs may finish), twice stops what runs and puts it
back, three times does not wait for that either. The work itself is the
supervisor's; if that dies, another is started.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

from hypervisor.agents.running_status import live_sessions
from hypervisor.batches.pipeline import PipelineRun, batches_from
from hypervisor.batches.pipeline_status import pattern
from hypervisor.batches.reduce import MOVING, has_pending_reduce, release_reduce
from hypervisor.batches.sql import summary
from hypervisor.cli import result
from hypervisor.cli.output import (
    columns_here,
    one_line,
    plain,
    print_json_object,
    say,
    wants_colour,
)
from hypervisor.cli.progress import OPEN, Counts, Pace, RunCounter, count
from hypervisor.cli.render import Frame, Span, render
from hypervisor.cli.stages import added_up, answer_of, stage_lines, stages_of, together
from hypervisor.cli.views import FRAME, Live, View, view_for
from hypervisor.core.errors import EXIT_CHECKPOINT, EXIT_OK, EXIT_UNSUCCESSFUL
from hypervisor.inputs.task_files.write_back import Unwritten, unwritten
from hypervisor.queue.context import Context
from hypervisor.queue.look import list_tasks
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Task
from hypervisor.runs import run as running
from hypervisor.runs import sql as runs_sql
from hypervisor.runs import status as looking
from hypervisor.runs.run import Submitted
from hypervisor.runs.spec import BATCH, Pause
from hypervisor.runs.status import Status

INTERRUPTED = 130
QUICKEST, CALM, SLOWEST = 0.02, 0.25, 2.0
BEAT = 0.02  # how often it is asked whether anything runs any more; …
BEATS = 100  # … after so many times as long, less often: that is soon enough then
CALMING_DOWN = 50  # a run that has lasted so many looks long may be looked at as seldom
LOOKS_PER_COST = 15  # looking shall cost at most a fifteenth of the time
FAR = 1_000  # milliseconds until the end, as far as can be told
SUPERVISOR_LOOK = 1.0
MOST_TOLD = 20
MOST_FAILURES = 500
OURS = ("supervisor", "worker-")
LAST_WORD = 15.0  # seconds


def follow(hv: Context, whole: PipelineRun, as_json: bool, quiet: bool, left_out: int = 0) -> int:
    """Show progress until nothing of it has more to do. Returns the exit code."""
    last: Seen | None = None
    with Interrupts() as interrupts:
        with view_for(quiet or as_json) as view:
            if whole.to_do:
                last = _watch(hv, whole, view, interrupts)
                _wait_for_agents(hv, whole, interrupts)
        for batch in whole.batches:
            hv.launcher.forget_environment(batch)
        behind = {part.batch.name: _unwritten(hv, part) for part in whole.parts}
        if as_json:
            counts = {"left_out": left_out, "unwritten": sum(map(len, behind.values()))}
            print_json_object({**_as_json(hv, whole), **counts})
        else:
            _report(hv, whole, last, quiet)
            told = [line for name in behind for line in result.unwritten(behind[name], name)]
            say(*(render(line, wants_colour()) for line in told))
    if interrupts.count:
        return INTERRUPTED
    if last is not None and last.status.checkpoint is not None:
        return EXIT_CHECKPOINT
    failed = any(behind.values()) or unsuccessful(hv, whole)
    return EXIT_UNSUCCESSFUL if failed else EXIT_OK


def _unwritten(hv: Context, part: Submitted) -> list[Unwritten]:
    return unwritten(hv, part.batch.id, part.since)


def unsuccessful(hv: Context, whole: PipelineRun) -> int:
    """How many tasks of all parts did not succeed in this run."""
    return sum(running.unsuccessful(hv, part) for part in whole.parts)


def watch(hv: Context, batch: str | None, view: View) -> None:
    """Show a batch, with what follows on it, until it has ended, or everything until Ctrl-C."""
    found = None if batch is None else batches_from(hv, hv.store.read(queries.batch, batch).id)
    watcher = Watcher(hv, found, view, hv.now(), lambda s: count(s.stats.states, s.attempts))
    while True:
        if watcher.is_due():
            seen = watcher.look()
            if found and (_is_at_checkpoint(seen.status) or (not (seen.pending or seen.open))):
                watcher.show(0)
                return
        watcher.show(0)
        watcher.rest()


def has_ended(hv: Context, batch: str) -> bool:
    """Whether nothing of a batch, and of what follows on it, will run any more by itself."""
    parts = batches_from(hv, hv.store.read(queries.batch, batch).id)
    pending = has_pending_reduce(hv, parts[0])  # first: what is released between the looks is seen
    status = together([looking.standing(hv, part) for part in parts])
    return not pending and open_tasks(status) <= stuck_of(hv, parts, status)


def stuck_of(hv: Context, batches: Sequence[str], status: Status) -> int:
    """How many wait in vain; looked up only where nothing moves."""
    states = status.stats.states
    if not states["waiting"] or any(states[state] for state in MOVING):
        return 0
    found = hv.store.read(runs_sql.stuck, batches)
    return sum(found.get(batch, 0) for batch in batches)


class Seen(NamedTuple):
    """How all parts stand together."""

    status: Status
    stuck: int = 0  # of those that wait: in vain, as what they wait for did not succeed
    pending: bool = False  # before the look: the reduce had yet to be released
    told: frozenset[str] = frozenset()  # the tasks whose failure stands on the screen

    @property
    def open(self) -> int:
        """How many tasks are not over yet, and may still run."""
        return open_tasks(self.status) - self.stuck


class Watcher:
    """Looks as often as it may cost and shows what it saw, with the clock going on between."""

    def __init__(
        self,
        hv: Context,
        batches: Sequence[str] | None,
        view: View,
        since: int,
        counts: Callable[[Status], Counts],
    ) -> None:
        self.hv, self.batches, self.view, self.since = hv, batches, view, since
        self._counts = counts
        self._pace = Pace()
        self._failures = Failures(hv, batches or (None,), since)
        self._scene: Frame | None = None
        self._unhurried = not isinstance(view, Live)  # nobody waits for a sign of it
        self._runs = False  # something ran when it was last asked
        self._beat = BEAT
        self._began = self._next = time.monotonic()
        self._offset = since - self._began * 1000

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def look(self) -> Seen:
        began = time.thread_time()  # not what it waits: where that is long, others are at work
        batches = self.batches or ()
        pending = len(batches) > 1 and has_pending_reduce(self.hv, batches[0])
        look = looking.status if self.view.shows else looking.standing
        found = [look(self.hv, batch) for batch in self.batches or (None,)]
        status = together(found)
        stuck = stuck_of(self.hv, self.batches, status) if self.batches else 0
        counts = self._counts(status)
        now = self.hv.now()
        self._offset = now - time.monotonic() * 1000
        self._pace.note(now, counts, status.attempts)
        if self.view.shows:
            self._tell_failures(counts)
        seen = Seen(status, stuck, pending, frozenset(self._failures.told))
        busy = counts.running or not counts.open or status.brakes or status.pauses
        idle_since = None if busy else (self._scene and self._scene.idle_since) or now
        self._scene = Frame(
            status,
            counts,
            now,
            self.since,
            self._pace.per_second,
            self._pace.left,
            0,
            idle_since,
            stages=stages_of(found) if len(found) > 1 else (),
        )
        self._runs = status.stats.claimed > 0
        self._next = time.monotonic() + self._pause(time.thread_time() - began)
        return seen

    def hurry(self) -> None:
        """Somebody waits for the end: look now, and often."""
        self._unhurried, self._next = False, time.monotonic()

    def _pause(self, cost: float) -> float:
        """Until the next look. There is no hurry where nobody sees it: as long as something
        runs, the end is noticed without one."""
        if self._unhurried and self._runs:
            return SLOWEST
        left, age = self._pace.left, time.monotonic() - self._began
        calm = CALM if left and left > FAR else min(max(age / CALMING_DOWN, QUICKEST), CALM)
        return min(max(cost * LOOKS_PER_COST, calm), SLOWEST)

    def show(self, interrupts: int) -> None:
        if self._scene is not None:
            now = int(time.monotonic() * 1000 + self._offset)
            self.view.show(self._scene._replace(now=now, interrupts=interrupts))

    def rest(self) -> None:
        """Until there is something to do: look, or move the clock on."""
        until = min(max(self._next, time.monotonic() + 0.005), time.monotonic() + FRAME)
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, self._beat))
            if self._has_run_out():
                self._next = time.monotonic()
                return

    def _has_run_out(self) -> bool:
        """Whether what ran has ended and nothing new has begun: mostly, that is the end."""
        if self.batches is None:
            return False
        began = time.monotonic()
        runs = any(self.hv.store.read(summary.any_running, batch) for batch in self.batches)
        age, cost = began - self._began, time.monotonic() - began
        self._beat = max(BEAT, cost * LOOKS_PER_COST, min(age / BEATS, FRAME))
        ran, self._runs = self._runs, runs
        return ran and not runs

    def _tell_failures(self, counts: Counts) -> None:
        new, more = self._failures.new(counts.failed)
        if new or more:
            self.view.failed(new, more)


class Failures:
    """The tasks that fail from now on, told one by one up to a number."""

    def __init__(self, hv: Context, batches: Sequence[str | None], since: int) -> None:
        self._hv, self._batches, self._since = hv, batches, since
        self.told: set[str] = set()
        self._count = 0

    def new(self, count: int) -> tuple[list[Task], bool]:
        """Those not told yet, and whether from now on they are only counted."""
        if count == self._count or len(self.told) >= MOST_TOLD:
            self._count = count
            return [], False
        self._count = count
        found = failed_since(self._hv, self._batches, self._since, ("failed",))
        fresh = [task for task in found if task.id not in self.told]
        told = fresh[: MOST_TOLD - len(self.told)]
        self.told |= {task.id for task in told}
        return told, len(self.told) >= MOST_TOLD


def failed_since(
    hv: Context, batches: Sequence[str | None], since: int, states: tuple[str, ...]
) -> list[Task]:
    """Tasks that ended badly since then, in the order in which they did."""
    pages = (list_tasks(hv, states, batch, limit=MOST_FAILURES) for batch in batches)
    recent = [task for page in pages for task in page if task.updated_at >= since]
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


def _watch(hv: Context, whole: PipelineRun, view: View, interrupts: Interrupts) -> Seen:
    counter = RunCounter(*whole.parts)

    def counts(status: Status) -> Counts:
        if not view.shows:
            return count(status.stats.states, ())  # all that the pace needs
        return counter.count(status.stats, status.attempts, ended(hv, whole))

    watcher = Watcher(hv, whole.batches, view, whole.first.since, counts)
    handled, looked_for_supervisor = 0, time.monotonic()
    seen, trouble = watcher.look(), ""
    while not _is_over(hv, whole, seen, handled > 0) and interrupts.count <= 2:
        if interrupts.count > handled:
            handled = interrupts.count
            _interrupt(hv, whole.batches, handled)
            watcher.hurry()
        watcher.show(interrupts.count)
        if seen.status.trouble != trouble:
            trouble = seen.status.trouble
            _tell_trouble(trouble, view)
        if time.monotonic() - looked_for_supervisor > SUPERVISOR_LOOK:
            looked_for_supervisor = time.monotonic()
            if seen.status.supervisor is None:
                running.supervise(hv)
        watcher.rest()
        if watcher.is_due():
            seen = watcher.look()
    return seen


def _tell_trouble(trouble: str, view: View) -> None:
    """A full disk is everybody's concern, also where progress is not shown."""
    if trouble and not view.shows:
        print(f"hv: {one_line(trouble)}", file=sys.stderr, flush=True)


def ended(hv: Context, whole: PipelineRun) -> dict[str, int]:
    """How many tasks of all parts have come into each state since the run began."""
    found: Counter[str] = Counter()
    for part in whole.parts:
        found.update(running.outcome(hv, part))
    return found


def _wait_for_agents(hv: Context, whole: PipelineRun, interrupts: Interrupts) -> None:
    """An agent tells what it cost with its last word, which comes after its task has ended."""
    specs = [(part.batch.id, part.batch.spec) for part in whole.parts]
    batches = [id for id, spec in specs if isinstance(spec, dict) and spec.get("agent")]
    deadline = time.monotonic() + LAST_WORD
    while batches and not interrupts.count and time.monotonic() < deadline:
        if not any(live_sessions(hv, batch) for batch in batches):
            return
        time.sleep(CALM)


def open_tasks(status: Status) -> int:
    """How many tasks are not over yet."""
    return sum(status.stats.states[state] for state in OPEN)


def _is_over(hv: Context, whole: PipelineRun, seen: Seen, interrupted: bool) -> bool:
    """Nothing is open, or nothing runs and nothing will until somebody runs it again."""
    status = seen.status
    if (not (seen.pending or seen.open)) or _is_at_checkpoint(status):
        return True
    over = bool(status.pauses) if interrupted else any(map(_is_final, status.pauses))
    if over and not status.stats.claimed:
        return True
    if not seen.open:
        release_reduce(hv, whole.first.batch.id)  # and look again: then the reduce may run
    return False


def _is_at_checkpoint(status: Status) -> bool:
    moves = status.stats.claimed or status.stats.states["active"]
    return status.checkpoint is not None and not moves


def _is_final(pause: Pause) -> bool:
    """A person's pause is waited for; one made by a run or by its supervisor ends the run."""
    by_the_run = pause.reason == running.INTERRUPTED or pause.actor.startswith(OURS)
    return pause.scope == BATCH and by_the_run


def _interrupt(hv: Context, batches: Sequence[str], count: int) -> None:
    for batch in batches:
        running.pause(hv, batch, reason=running.INTERRUPTED)
    for batch in batches if count > 1 else ():
        running.stop_batch(hv, batch)


def _as_json(hv: Context, whole: PipelineRun) -> dict[str, Any]:
    first = whole.first
    summary = running.summary(hv, first.batch.id, tasks=False)
    tasks = running.reports(hv, first.batch.id)
    answer = {**plain(summary), "tasks": tasks, "skipped": first.already_done}
    if found := pattern(hv, first.batch.id):
        answer |= plain(found._asdict())
    return answer


def _report(hv: Context, whole: PipelineRun, last: Seen | None, quiet: bool) -> None:
    found = pattern(hv, whole.first.batch.id)
    told = stage_lines(found, columns_here()) if found else []
    bad: list[Task] = []
    if last is not None:
        stages = stage_lines(found, columns_here(), answer=False) if found else []
        above: frozenset[str] = frozenset() if quiet else last.told
        told, bad = _result(hv, whole, last, above, stages)
        told += answer_of(found) if found else []
    gap = [""] if bad and sys.stdout.isatty() else []
    if told:
        say(*gap, *(render(line, wants_colour()) for line in told))


def _result(
    hv: Context, whole: PipelineRun, last: Seen, above: frozenset[str], stages: list[list[Span]]
) -> tuple[list[list[Span]], list[Task]]:
    first, states = whole.first, ("failed", "blocked", "review")
    bad = failed_since(hv, whole.batches, first.since, states)
    summaries = [running.summary(hv, batch, tasks=False) for batch in whole.batches]
    lines = result.lines(
        first,
        ended(hv, whole),
        open_tasks(last.status),
        last.status,
        added_up(summaries),
        bad,
        hv.now() - first.since,
        last.stuck,
        above,
        stages,
    )
    return lines, bad
