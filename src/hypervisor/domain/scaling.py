"""What parallelism is worth for a type of task, told from how long attempts took.

An attempt that runs beside others takes longer than alone, by a ratio that depends
on how many run at once:

    ratio(n) = max(1 + a·(n − 1) + b·n·(n − 1), n / c)

`a` is what they wait for each other, `b` what they cost each other (both as in the
Universal Scalability Law), `c` how many can be served at once: cores, a lock, a quota.
The throughput of n is n / ratio(n) times that of one.

What is believed is a weight for each point of a grid of (a, b, c). How long one takes
alone, and how much that varies, is integrated out: only ratios between levels count,
so it does not matter whether the level 1 was ever seen. Old samples fade.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import exp, inf, log
from typing import NamedTuple

WAITS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 0.8, 1.0)
COSTS = (0.0, 0.004, 0.015, 0.05, 0.15, 0.4)
SERVED = (1.0, 1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0, inf)
FADE = 0.985  # what a sample weighs when another one comes
FADE_AT_FIRST = 0.9  # after a change: attempts that ran through it belong to neither world
AT_FIRST = 16
FORGOTTEN = 0.05
SPREAD = 0.15  # how much durations vary, as a share, until they tell …
SPREAD_WEIGHT = 4.0  # … with so many samples' weight
SURPRISE = 2.6  # so many times the usual spread is no accident …
IN_A_ROW = 3  # … if it comes so often
DOUBT = 0.08  # how far off what is claimed may be, at least
UNCLEAR = 0.12  # further from a whole number, and the number changed meanwhile
MANY = 4  # so many and one more or less are about the same
KNOWN = 3.0  # samples that a level needs before anything can surprise
MOST_AT_ONCE = 256
SHORTEST = 1e-4


class Level(NamedTuple):
    """Attempts that ran with so many at once: how many, the mean of their log durations, and
    the sum of squares around it."""

    weight: float = 0.0
    mean: float = 0.0
    squares: float = 0.0


class Evidence(NamedTuple):
    """All that is remembered of a type. `odd` are the last samples, while they do not fit."""

    levels: Mapping[int, Level] = {}
    samples: int = 0
    odd: tuple[tuple[int, float], ...] = ()
    changes: int = 0  # how often the world has changed …
    changed: int = 0  # … and with which sample the last time
    level: int = 0  # how many ran at once when that changed last, …
    run: int = 0  # … and the samples since


class Claimed(NamedTuple):
    """What somebody said: the share of time that `at` workers save. It counts as a few samples
    until there are better ones."""

    benefit: float
    at: int = 4
    weight: float = 4.0


class Range(NamedTuple):
    """An estimate and the interval in which the truth is with 90 %."""

    mean: float
    low: float
    high: float


class Point(NamedTuple):
    wait: float
    cost: float
    served: float
    log_prior: float

    def ratio(self, n: int) -> float:
        return max(1 + self.wait * (n - 1) + self.cost * n * (n - 1), n / self.served)


def followed(evidence: Evidence, at_once: float, seconds: float) -> Evidence:
    """The evidence with the next attempt that ended. When their number changes, it takes a round
    until the new number shows: who comes first to a lock did not wait yet for all the others."""
    n = min(max(1, round(at_once)), MOST_AT_ONCE)
    is_same = n == evidence.level or (
        min(n, evidence.level) >= MANY and abs(n - evidence.level) <= 1
    )
    is_clear = abs(at_once - n) <= UNCLEAR * n
    run = (evidence.run + 1 if is_same else 1) if is_clear else 0
    evidence = evidence._replace(level=evidence.level if is_same else n, run=run)
    return seen(evidence, n, seconds) if run >= max(n, 2) else evidence


def seen(evidence: Evidence, at_once: float, seconds: float) -> Evidence:
    """The evidence with one more attempt, which took `seconds` with so many running at once.
    When several in a row are far from what their levels had, all that was known is void."""
    n = min(max(1, round(at_once)), MOST_AT_ONCE)
    value = log(max(seconds, SHORTEST))
    odd = (*evidence.odd, (n, value)) if _is_odd(evidence, n, value) else ()
    if len(odd) >= IN_A_ROW:
        count = evidence.samples + 1
        return evidence._replace(
            levels=_levels_of(odd), samples=count, odd=(), changes=evidence.changes + 1,
            changed=count,
        )  # fmt: skip
    is_new = evidence.changes and evidence.samples - evidence.changed < AT_FIRST
    keep = FADE_AT_FIRST if is_new else FADE
    faded = {k: _faded(level, keep) for k, level in evidence.levels.items()}
    levels = {k: level for k, level in faded.items() if level.weight > FORGOTTEN}
    levels[n] = _added(levels.get(n, Level()), value)
    return evidence._replace(levels=levels, samples=evidence.samples + 1, odd=odd)


def believed(evidence: Evidence, claimed: Claimed | None = None) -> Belief:
    """What follows from the evidence, and from what somebody claimed."""
    levels = list(evidence.levels.items())
    total = sum(level.weight for _, level in levels)
    within = sum(level.squares for _, level in levels)
    trust = 0.5 * (SPREAD_WEIGHT + max(total - 1, 0.0))
    least = SPREAD_WEIGHT * SPREAD**2 + within
    logs = [
        point.log_prior - trust * log(least + between)
        for point, between in zip(grid(), _between(levels, total), strict=True)
    ]
    if claimed is not None:
        logs = [each + _agreement(point, claimed) for each, point in zip(logs, grid(), strict=True)]
    top = max(logs)
    return Belief([exp(each - top) for each in logs], evidence, claimed is not None)


class Belief:
    """A weight for each point of the grid, and what they say together."""

    def __init__(
        self, weights: Sequence[float], evidence: Evidence, is_claimed: bool = False
    ) -> None:
        total = sum(weights)
        self.evidence = evidence
        self.is_claimed = is_claimed  # somebody's word is part of it
        self._weights = [
            (w / total, p) for w, p in zip(weights, grid(), strict=True) if w > 1e-6 * total
        ]
        self._expected: dict[int, float] = {}

    def expected(self, n: int) -> float:
        """How many times as much n workers do as one, by the best guess."""
        if n not in self._expected:
            self._expected[n] = sum(w * n / point.ratio(n) for w, point in self._weights)
        return self._expected[n]

    def throughput(self, n: int) -> Range:
        """How many times as much n workers do as one."""
        return _range((n / point.ratio(n), w) for w, point in self._weights)

    def benefit(self, n: int) -> Range:
        """The share of time that n workers save: 0.85 means that 15 % of it is left."""
        return _range((1 - point.ratio(n) / n, w) for w, point in self._weights)

    def probability(self, n: int, other: int, share: float) -> float:
        """How likely n workers do at least that share of what the others do."""
        return self.chance(lambda p: n * p.ratio(other) >= share * other * p.ratio(n))

    def chance(self, holds: Callable[[Point], bool]) -> float:
        return sum(w for w, point in self._weights if holds(point))


@lru_cache(maxsize=1)
def grid() -> tuple[Point, ...]:
    """All that is thought possible, the simple before the odd."""
    return tuple(
        Point(wait, cost, served, _prior(wait, cost, served))
        for wait in WAITS
        for cost in COSTS
        for served in SERVED
    )


def _prior(wait: float, cost: float, served: float) -> float:
    simple = 0.7 * ((wait == 0) + (cost == 0)) + (served == 1)
    return simple - 1.5 * wait - 4 * cost


def _range(parts: Iterable[tuple[float, float]]) -> Range:
    found = sorted(parts)
    mean = sum(value * w for value, w in found)
    low = high = found[0][0]
    reached = 0.0
    for value, w in found:
        if reached <= 0.05:
            low = value
        high = value
        reached += w
        if reached >= 0.95:
            break
    return Range(mean, low, high)


def _between(levels: list[tuple[int, Level]], total: float) -> list[float]:
    """For each point, how far the levels' means are from where it has them, one free shift
    aside: the weighted variance of what is left, times the weight."""
    if len(levels) < 2:
        return [0.0] * len(grid())
    first = [0.0] * len(grid())
    second = [0.0] * len(grid())
    for n, level in levels:
        share, mean = level.weight / total, level.mean
        for index, ratio in enumerate(log_ratios(n)):
            offset = mean - ratio
            first[index] += share * offset
            second[index] += share * offset * offset
    return [max(total * (b - a * a), 0.0) for a, b in zip(first, second, strict=True)]


@lru_cache(maxsize=MOST_AT_ONCE)
def log_ratios(n: int) -> tuple[float, ...]:
    return tuple(log(point.ratio(n)) for point in grid())


def _agreement(point: Point, claimed: Claimed) -> float:
    off = (1 - point.ratio(claimed.at) / claimed.at) - claimed.benefit
    return -0.5 * (claimed.weight + 1) * log(1 + (off / DOUBT) ** 2 / claimed.weight)


def _is_odd(evidence: Evidence, n: int, value: float) -> bool:
    """Not as the same level was before, and that level is well known."""
    level = evidence.levels.get(n)
    if level is None or level.weight < KNOWN:
        return False
    variance = (SPREAD_WEIGHT * SPREAD**2 + level.squares) / (SPREAD_WEIGHT + level.weight - 1)
    return bool(abs(value - level.mean) > SURPRISE * variance**0.5)


def _levels_of(samples: Iterable[tuple[int, float]]) -> dict[int, Level]:
    levels: dict[int, Level] = {}
    for n, value in samples:
        levels[n] = _added(levels.get(n, Level()), value)
    return levels


def _faded(level: Level, keep: float) -> Level:
    return Level(level.weight * keep, level.mean, level.squares * keep)


def _added(level: Level, value: float) -> Level:
    weight = level.weight + 1
    mean = level.mean + (value - level.mean) / weight
    return Level(weight, mean, level.squares + (value - level.mean) * (value - mean))
