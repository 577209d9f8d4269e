"""Decides which part of a stack of changes passes verification, and which change breaks it.

A stack of n changes has the prefixes 0 (the target as it is) to n (all of them). The longest prefix
is tried first. If it fails, the change after the longest prefix that passes and up to the shortest
that fails is searched by halving: 5 runs for 16 changes. No change is the culprit before the
same prefix has failed twice: if it passes the second time, the verification is flaky. There is
no culprit either if the target itself fails. That it passed once, some time ago, does not count if
nothing has passed since: then it may be the surroundings that fail.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypervisor.core.records import NamedTuple

CONFIRMED = 2  # failures of the same prefix


class Run(NamedTuple):
    """A verification that is wanted. `again`: it failed once; run it without any cached result."""

    prefix: int
    again: bool = False


class Result(NamedTuple):
    """The first `passed` changes may land. Then comes the `culprit` (counted from 1), if any.
    `flaky` are the prefixes that failed and then passed."""

    passed: int
    culprit: int | None = None
    base_failed: bool = False
    flaky: tuple[int, ...] = ()


@dataclass
class Plan:
    """Start the `wanted` runs and `record` how they end, until there is a `result`. `base_passed`:
    the target passed before, as far as is known."""

    size: int
    base_passed: bool = False
    _passed: set[int] = field(default_factory=set)
    _failures: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.base_passed:
            self._passed.add(0)

    def record(self, run: Run, passed: bool) -> None:
        if run.prefix == 0:
            self.base_passed = False  # it is known by now
            self._passed.discard(0)
        if passed:
            self._passed.add(run.prefix)
        elif run.prefix not in self._passed:
            self._failures[run.prefix] = self._failures.get(run.prefix, 0) + 1

    def wanted(self, width: int = 1, running: frozenset[Run] = frozenset()) -> list[Run]:
        """The runs to start while those in `running` continue, so that `width` run at a time."""
        if self.result:
            return []
        chosen: list[Run] = []
        while len(running) + len(chosen) < width:
            run = self._next(running.union(chosen))
            if run is None:
                break
            chosen.append(run)
        return chosen

    def useless(self, run: Run) -> bool:
        """Whether a run in progress can no longer change the result."""
        low, high = self._bounds()
        outside = run.prefix < low or (high is not None and run.prefix > high)
        known = run.prefix in self._passed and run.prefix == low
        return self.result is not None or outside or known

    @property
    def result(self) -> Result | None:
        low, high = self._bounds()
        flaky = tuple(sorted(prefix for prefix in self._failures if prefix in self._passed))
        if high is None:
            return Result(low, flaky=flaky) if low == self.size and self._passed else None
        if self._failures[high] < CONFIRMED:
            return None
        if high == 0:
            return Result(0, base_failed=True, flaky=flaky)
        if high == low + 1 and low in self._passed and not self._lacks_control:
            return Result(low, culprit=high, flaky=flaky)
        return None

    @property
    def _lacks_control(self) -> bool:
        """Nothing has passed since the search began."""
        return self.base_passed and self._passed == {0}

    def _bounds(self) -> tuple[int, int | None]:
        """The longest prefix that passes (0 if none is known to) before the shortest after it
        that fails."""
        low = max(self._passed, default=0)
        failed = [prefix for prefix in self._failures if prefix not in self._passed]
        return low, min((prefix for prefix in failed if prefix >= low), default=None)

    def _next(self, running: frozenset[Run]) -> Run | None:
        low, high = self._bounds()
        if high is None and Run(self.size) not in running:
            return Run(self.size)
        top = self.size if high is None else high
        middle = _middle_of_widest([low, *_inside(running, low, top), top])
        if middle is not None or high is None:
            return None if middle is None else Run(middle)
        candidates = []
        if self._lacks_control:  # first: what fails twice afterwards does so by itself
            candidates.append(Run(0, again=True))
        elif low not in self._passed and low not in self._failures:
            candidates.append(Run(low))
        if 0 < self._failures.get(high, 0) < CONFIRMED:
            candidates.append(Run(high, again=True))
        return next((run for run in candidates if run not in running), None)


def _inside(running: frozenset[Run], low: int, high: int) -> list[int]:
    return sorted({run.prefix for run in running if low < run.prefix < high})


def _middle_of_widest(points: list[int]) -> int | None:
    gap, start = max((b - a, -a) for a, b in pairwise(points))
    return -start + gap // 2 if gap > 1 else None
