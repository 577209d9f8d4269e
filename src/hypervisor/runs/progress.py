"""How far a run has come, how fast it is and how long it may still take.

Mostly by the tasks that ended. Where those are few, the age of a running task counts as a part
of a task, by how long others took.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple

from hypervisor.queue.task import Stats
from hypervisor.runs.run import OPEN, Submitted
from hypervisor.runs.status import Attempting

HELD = ("inbox", "review", "blocked")
SHORTEST_WINDOW = 8_000
ENOUGH = 30  # ended tasks that make a rate to rely on
SPACING = 250
MOST_SAMPLES = 400
ALMOST = 0.95  # of a task: one that takes longer than the others is still not done
REMEMBERED = 50
TOO_EARLY = 1_000


class Counts(NamedTuple):
    """Tasks by how they stand; of a run, only those that the run is about."""

    done: int = 0
    failed: int = 0
    cancelled: int = 0
    held: int = 0
    waiting: int = 0  # for their time, or for other tasks
    open: int = 0
    running: int = 0
    skipped: int = 0

    @property
    def ended(self) -> int:
        return self.done + self.failed + self.cancelled + self.held

    @property
    def total(self) -> int:
        return self.ended + self.open


def count(states: Mapping[str, int], attempts: Collection[Attempting]) -> Counts:
    """All tasks as they stand."""
    return Counts(
        states["done"],
        states["failed"],
        states["cancelled"],
        sum(states[state] for state in HELD),
        states["waiting"],
        sum(states[state] for state in OPEN),
        len(running(attempts)),
    )


class RunCounter:
    """Counts the tasks of a run only; those that ended before it are no part of it.

    What is open and what has ended are looked up one after the other while tasks
    end, so only one of them can be relied on: the rest of all is what is done.
    """

    def __init__(self, *parts: Submitted) -> None:
        self._to_do = sum(part.to_do for part in parts)
        self._skipped = parts[0].already_done
        self._total = self._of_batch = 0

    def count(
        self, stats: Stats, attempts: Collection[Attempting], ended: Mapping[str, int]
    ) -> Counts:
        everything = count(stats.states, attempts)
        if not self._total:
            self._total = max(self._to_do, everything.open)
            self._of_batch = stats.total
        total = self._total + stats.total - self._of_batch
        failed, cancelled = ended.get("failed", 0), ended.get("cancelled", 0)
        held = sum(ended.get(state, 0) for state in HELD)
        done = max(total - everything.open - failed - cancelled - held, 0)
        return everything._replace(
            done=done,
            failed=failed,
            cancelled=cancelled,
            held=held,
            skipped=self._skipped,
        )


def running(attempts: Collection[Attempting]) -> dict[tuple[str, int], Attempting]:
    """What each worker runs. One that has ended may still be listed: the last one counts."""
    return {(attempt.worker, attempt.pid): attempt for attempt in attempts if attempt.started}


class Pace:
    """The rate and the time left, smoothed over enough tasks to mean something."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque()
        self._took: deque[int] = deque(maxlen=REMEMBERED)
        self._seen: dict[tuple[str, int], int] = {}
        self._left, self._credited = 0, 0.0

    def note(self, now: int, counts: Counts, attempts: Collection[Attempting]) -> None:
        at_work = running(attempts).values()
        self._learn(now, at_work)
        self._left, self._credited = counts.open, self._credit(now, at_work)
        if not self._samples or now - self._samples[-1][0] >= SPACING:
            self._samples.append((now, counts.ended + self._credited))
        if len(self._samples) > MOST_SAMPLES:
            self._samples = deque(list(self._samples)[::2])

    @property
    def per_second(self) -> float | None:
        """Tasks a second, None while it is too early to tell."""
        if len(self._samples) < 2:
            return None
        last_at, last = self._samples[-1]
        for at, ended in reversed(self._samples):
            if last_at - at >= SHORTEST_WINDOW and last - ended >= ENOUGH:
                break
        took, gained = last_at - at, last - ended
        return gained * 1000 / took if took >= TOO_EARLY and gained >= 1 else None

    @property
    def left(self) -> int | None:
        """Milliseconds until all is done, at this rate."""
        rate = self.per_second
        if not rate:
            return None
        return round(max(self._left - self._credited, 0) * 1000 / rate)

    def _learn(self, now: int, attempts: Collection[Attempting]) -> None:
        """How long attempts take, from those that were there and are gone."""
        here = {(a.task, a.attempt): now - a.since for a in attempts}
        self._took.extend(age for key, age in self._seen.items() if key not in here)
        self._seen = here

    def _credit(self, now: int, attempts: Collection[Attempting]) -> float:
        if not self._took:
            return 0.0
        usual = max(sum(self._took) / len(self._took), 1.0)
        return sum(min((now - a.since) / usual, ALMOST) for a in attempts)
