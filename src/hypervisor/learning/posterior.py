"""The value of parallelism for a type of task, estimated from how long attempts took.

An attempt that runs alongside others takes longer than alone, by a ratio that depends
on how many run at once:

    ratio(n) = max(1 + a·(n − 1) + b·n·(n − 1), n / c)

`a` is contention, `b` coherency cost (both as in the Universal Scalability Law), `c` how
many can be served at once: cores, a lock, a quota. The throughput of n is n / ratio(n) times
that of one.

The posterior is a weight for each point of a grid of (a, b, c). For each point, the time of
one attempt alone follows from the levels observed, so level 1 need not be among them; the
variation of durations is integrated out. Neither a point of a grid nor a law is exact: the
prediction for a level may be off by a few percent, however many samples there are. And at
any point, n workers cannot be faster than the CPU seconds of an attempt divided by the
cores. Old samples fade.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import exp, inf, log
from operator import mul
from typing import Any

from hypervisor.core.records import NamedTuple
from hypervisor.learning.evidence import (
    FORGOTTEN,
    LAW,
    MAX_CONCURRENT,
    SPREAD,
    SPREAD_WEIGHT,
    Evidence,
    Level,
    variance,
)

WAITS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 0.8, 1.0)
COSTS = (0.0, 0.004, 0.015, 0.05, 0.15, 0.4)
SERVED = (1.0, 1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0, inf)
CLAIM_DECAY = 0.9  # the weight of a claim after each sample: it is tested, not just believed
CLAIM_TOLERANCE = 0.08  # how far off a claim may be
MIN_CPU_SHARE = 0.93  # an attempt may use this little of its expected CPU time
UNLIKELY = 1e-4


class Claim(NamedTuple):
    """The user's estimate: the share of time that `at` workers save. It counts as a few samples,
    and for less with each real one: otherwise nothing else might ever be tried."""

    benefit: float
    at: int = 4
    weight: float = 4.0


def claim_from(prior: Mapping[str, Any] | None) -> Claim | None:
    return None if prior is None else Claim(float(prior["benefit"]))


class Range(NamedTuple):
    """An estimate and its 90 % interval."""

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


def posterior(evidence: Evidence, claimed: Claim | None = None) -> Posterior:
    """The posterior from the evidence and the user's estimate."""
    levels = evidence.levels
    total = sum(level.weight for level in levels.values())
    within = sum(level.squares for level in levels.values())
    trust = 0.5 * (SPREAD_WEIGHT + max(total - 1, 0.0))
    least = SPREAD_WEIGHT * SPREAD**2 + within
    alone, between = _fitted(levels)
    logs = [
        point.log_prior - trust * log(least + value)
        for point, value in zip(grid(), between, strict=True)
    ]
    trusted = CLAIM_DECAY**evidence.samples if claimed else 0.0
    if claimed is not None and trusted > FORGOTTEN:
        pairs = zip(logs, grid(), strict=True)
        logs = [value + trusted * _agreement(point, claimed) for value, point in pairs]
    top = max(logs)
    weights = [exp(value - top) for value in logs]
    return Posterior(weights, alone, evidence, trusted > FORGOTTEN)


class Posterior:
    """A weight for each point of the grid, and their combined predictions."""

    def __init__(
        self,
        weights: Sequence[float],
        alone: Sequence[float],
        evidence: Evidence,
        is_claimed: bool = False,
    ) -> None:
        self._kept = [index for index, w in enumerate(weights) if w > UNLIKELY]
        total = sum(weights[index] for index in self._kept)
        self.evidence = evidence
        self.is_claimed = is_claimed  # includes the user's estimate
        self.weights = [weights[index] / total for index in self._kept]
        self._alone = [exp(alone[index]) for index in self._kept]
        self.levels = evidence.levels
        known = [level.cores for level in self.levels.values() if level.weight >= 1]
        self._least = MIN_CPU_SHARE * min(known, default=0.0)
        self._times: dict[int, list[float]] = {}

    def times(self, n: int) -> list[float]:
        """The seconds for one attempt after another if n run at once, by each point."""
        if n not in self._times:
            every, least = shares(n), self._least
            pairs = zip(self._kept, self._alone, strict=True)
            times = [seconds * every[index] for index, seconds in pairs]
            self._times[n] = [duration if duration > least else least for duration in times]
        return self._times[n]

    def time(self, n: int) -> float:
        """The mean of these times."""
        return self.mean(self.times(n))

    def mean(self, values: Iterable[float]) -> float:
        total: float = sum(map(mul, self.weights, values))
        return total

    def weight(self, n: int) -> float:
        """The samples of a number of workers, by their faded weights."""
        level = self.levels.get(n)
        return 0.0 if level is None else level.weight

    def expected(self, n: int) -> float:
        """The mean throughput of n workers, as a multiple of one worker's."""
        return self.mean(a / b for a, b in zip(self.times(1), self.times(n), strict=True))

    def throughput(self, n: int) -> Range:
        """The throughput of n workers, as a multiple of one worker's."""
        both = zip(self.times(1), self.times(n), strict=True)
        return _range((a / b, w) for (a, b), w in zip(both, self.weights, strict=True))

    def benefit(self, n: int) -> Range:
        """The share of time that n workers save: 0.85 means that 15 % of it is left."""
        both = zip(self.times(1), self.times(n), strict=True)
        return _range((1 - b / a, w) for (a, b), w in zip(both, self.weights, strict=True))

    def chance(self, holds: Callable[[Point], bool]) -> float:
        return self.mean(float(holds(grid()[index])) for index in self._kept)


@lru_cache(maxsize=1)
def grid() -> tuple[Point, ...]:
    """All points, with a higher prior for simple ones."""
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
    values = sorted(parts)
    mean = sum(value * w for value, w in values)
    return Range(mean, _quantile(values, 0.05), _quantile(values, 0.95))


def _quantile(values: list[tuple[float, float]], share: float) -> float:
    """Half the weight of a value counts as below it, with linear interpolation between values: the
    truth is not on the grid."""
    last, before = values[0][0], 0.0
    reached = 0.0
    for value, w in values:
        middle = reached + 0.5 * w
        if middle >= share:
            return last + (value - last) * (share - before) / (middle - before)
        last, before = value, middle
        reached += w
    return last


def _fitted(levels: Mapping[int, Level]) -> tuple[list[float], list[float]]:
    """For each point, the log time of an attempt alone, and how far the means of the levels are
    from its predictions: the weighted variance of the residuals, times the weight. The accuracy of
    the law limits the weight of a level."""
    off = LAW**2 / variance(levels)
    weights = {n: level.weight / (1 + level.weight * off) for n, level in levels.items()}
    total = sum(weights.values())
    first = second = [0.0] * len(grid())
    for n, level in levels.items():
        share, mean = weights[n] / total, level.mean
        offsets = [mean - ratio for ratio in log_ratios(n)]
        first = [a + share * b for a, b in zip(first, offsets, strict=True)]
        second = [a + share * b * b for a, b in zip(second, offsets, strict=True)]
    return first, [max(total * (b - a * a), 0.0) for a, b in zip(first, second, strict=True)]


@lru_cache(maxsize=MAX_CONCURRENT)
def shares(n: int) -> tuple[float, ...]:
    """For each point, the time for one attempt after another among n, as a multiple of alone."""
    return tuple(point.ratio(n) / n for point in grid())


@lru_cache(maxsize=MAX_CONCURRENT)
def log_ratios(n: int) -> tuple[float, ...]:
    return tuple(log(point.ratio(n)) for point in grid())


def _agreement(point: Point, claimed: Claim) -> float:
    off = (1 - point.ratio(claimed.at) / claimed.at) - claimed.benefit
    return -0.5 * (claimed.weight + 1) * log(1 + (off / CLAIM_TOLERANCE) ** 2 / claimed.weight)
