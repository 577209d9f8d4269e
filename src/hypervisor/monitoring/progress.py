"""The progress of a run, its rate and the time left.

Mostly based on ended tasks. While those are few, a running task counts as a fraction of a task, by
its age and the duration of others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from hypervisor.core.records import NamedTuple
from hypervisor.queue.lifecycle import OPEN

if TYPE_CHECKING:
    from hypervisor.batches.submit import Submitted
    from hypervisor.monitoring.status import CurrentAttempt
    from hypervisor.queue.task import Stats

HELD = ("inbox", "review", "blocked")
COUNTED = ("done", "failed", "cancelled", *HELD, "waiting", "merging")
MIN_WINDOW = 8_000
ENOUGH = 30  # ended tasks for a reliable rate
SPACING = 250
MAX_SAMPLES = 400
ALMOST = 0.95  # maximum fraction: a task that takes longer than others is still not done
REMEMBERED = 50
TOO_EARLY = 1_000


class Counts(NamedTuple):
    """The number of tasks in each group of states; for a run, only its own tasks."""

    done: int = 0
    failed: int = 0
    cancelled: int = 0
    inbox: int = 0
    review: int = 0
    blocked: int = 0
    waiting: int = 0  # for their start time, or for other tasks
    merging: int = 0
    open: int = 0
    running: int = 0
    skipped: int = 0

    @property
    def ended(self) -> int:
        """Including those that only a person can continue."""
        held = self.inbox + self.review + self.blocked
        return self.done + self.failed + self.cancelled + held

    @property
    def total(self) -> int:
        return self.ended + self.open


def count(states: Mapping[str, int], attempts: Collection[CurrentAttempt]) -> Counts:
    """Count all tasks."""
    return Counts(
        **{state: states[state] for state in COUNTED},
        open=sum(states[state] for state in OPEN),
        running=len(running(attempts)),
    )


class RunCounter:
    """Counts the tasks of a run only; those that ended before it do not count.

    Open and ended tasks come from two queries while tasks end, so only one of the numbers is used:
    done is the total minus the rest.
    """

    def __init__(self, *parts: Submitted) -> None:
        self._to_do = sum(part.to_do for part in parts)
        self._skipped = parts[0].already_done
        self._total = self._of_batch = 0

    def count(
        self, stats: Stats, attempts: Collection[CurrentAttempt], ended: Mapping[str, int]
    ) -> Counts:
        everything = count(stats.states, attempts)
        if not self._total:
            self._total = max(self._to_do, everything.open)
            self._of_batch = stats.total
        total = self._total + stats.total - self._of_batch
        others = {state: ended.get(state, 0) for state in ("failed", "cancelled", *HELD)}
        done = max(total - everything.open - sum(others.values()), 0)
        return everything._replace(done=done, skipped=self._skipped, **others)


def running(attempts: Collection[CurrentAttempt]) -> dict[tuple[str, int], CurrentAttempt]:
    """The attempt that each worker is running. The last one counts, if several are listed."""
    return {(attempt.worker, attempt.pid): attempt for attempt in attempts if attempt.started}


class Pace:
    """The rate and the time left, smoothed over several tasks."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque()
        self._took: deque[int] = deque(maxlen=REMEMBERED)
        self._seen: dict[tuple[str, int], int] = {}
        self._left, self._credited = 0, 0.0

    def note(self, now: int, counts: Counts, attempts: Collection[CurrentAttempt]) -> None:
        at_work = running(attempts).values()
        self._learn(now, at_work)
        self._left, self._credited = counts.open, self._credit(now, at_work)
        if not self._samples or now - self._samples[-1][0] >= SPACING:
            self._samples.append((now, counts.ended + self._credited))
        if len(self._samples) > MAX_SAMPLES:
            self._samples = deque(list(self._samples)[::2])

    @property
    def per_second(self) -> float | None:
        """Tasks per second; None while it is too early to tell."""
        if len(self._samples) < 2:
            return None
        last_at, last = self._samples[-1]
        for at, ended in reversed(self._samples):
            if last_at - at >= MIN_WINDOW and last - ended >= ENOUGH:
                break
        duration, gained = last_at - at, last - ended
        return gained * 1000 / duration if duration >= TOO_EARLY and gained >= 1 else None

    @property
    def left(self) -> int | None:
        """Milliseconds until all is done, at this rate."""
        rate = self.per_second
        if not rate:
            return None
        return round(max(self._left - self._credited, 0) * 1000 / rate)

    def _learn(self, now: int, attempts: Collection[CurrentAttempt]) -> None:
        """Learn how long attempts take, from those that have ended since the last call."""
        here = {(a.task, a.attempt): now - a.since for a in attempts}
        self._took.extend(age for key, age in self._seen.items() if key not in here)
        self._seen = here

    def _credit(self, now: int, attempts: Collection[CurrentAttempt]) -> float:
        if not self._took:
            return 0.0
        usual = max(sum(self._took) / len(self._took), 1.0)
        return sum(min((now - a.since) / usual, ALMOST) for a in attempts)
