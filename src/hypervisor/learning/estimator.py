"""What parallelism is worth for a type of task, told from how long attempts took.

An attempt that runs beside others takes longer than alone, by a ratio that depends
on how many run at once:

    ratio(n) = max(1 + a·(n − 1) + b·n·(n − 1), n / c)

`a` is what they wait for each other, `b` what they cost each other (both as in the
Universal Scalability Law), `c` how many can be served at once: cores, a lock, a quota.
The throughput of n is n / ratio(n) times that of one.

What is believed is a weight for each point of a grid of (a, b, c). How long one takes
alone follows for each point from the levels that were seen, so it does not matter whether
the level 1 ever was; how much durations vary is integrated out. No point of a grid is the
truth, and neither is a law: what it says of a level may be off by a few percent, however many
samples there are. And whatever a point says, n workers cannot be faster than the CPU seconds
of an attempt divided by the cores. Old samples fade.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import exp, inf, log
from operator import mul
from typing import NamedTuple

WAITS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 0.8, 1.0)
COSTS = (0.0, 0.004, 0.015, 0.05, 0.15, 0.4)
SERVED = (1.0, 1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0, inf)
LAW = 0.06  # how far off the law may be, as a share
FADE = 0.985  # what a sample weighs when another one comes
FORGOTTEN = 0.05
SPREAD = 0.15  # how much durations vary, as a share, until they tell …
SPREAD_WEIGHT = 4.0  # … with so many samples' weight
FRESH = 4  # samples that are held against those before, …
LONGER = 8  # … and as many while they are in doubt
DOUBTFUL = 2.2  # standard deviations between them may be an accident, …
CHANGED = 3.4  # … and so many are none
FAR = 4.0  # standard deviations, at most, that one sample counts for when it is fresh, …
ODD = 2.5  # … and later: what is no change is luck, and says little of how much they vary
WORD = 0.9  # what a claim weighs when another sample comes: it is tried, not just believed
DOUBT = 0.08  # how far off what is claimed may be, at least
UNCLEAR = 0.12  # further from a whole number, and the number changed meanwhile
MANY = 4  # so many and one more or less are about the same
KNOWN = 1.5  # samples that a level needs before anything can surprise
BUSIEST = 0.93  # of the CPU time that it should have needed, an attempt may get by with
UNLIKELY = 1e-4
MOST_AT_ONCE = 256
SHORTEST = 1e-4


class Level(NamedTuple):
    """Attempts that ran with so many at once: how many, the mean of their log durations, the
    sum of squares around it, and the mean of the seconds that all cores together need for one."""

    weight: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    cores: float = 0.0


class Evidence(NamedTuple):
    """All that is remembered of a type. The last few samples are kept apart, to be held against
    what was before."""

    old: Mapping[int, Level] = {}
    fresh: tuple[tuple[int, float, float], ...] = ()  # how many at once, log seconds, cores
    samples: int = 0
    changes: int = 0  # how often the world has changed …
    changed: int = 0  # … and with which sample the last time
    level: int = 0  # how many ran at once when that changed last, …
    run: int = 0  # … and the samples since that count; below 1 while they do not yet

    @property
    def levels(self) -> dict[int, Level]:
        found = dict(self.old)
        for n, value, cores in self.fresh:
            found[n] = _added(found.get(n, Level()), value, cores)
        return found


class Claimed(NamedTuple):
    """What somebody said: the share of time that `at` workers save. It counts as a few samples,
    and for less with each real one: who begins as claimed may never see anything else."""

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


def followed(
    evidence: Evidence, at_once: float, seconds: float, cores: float = 0.0, at_first: int = 0
) -> Evidence:
    """The evidence with the next attempt that ended, which needed all cores for so long, and
    with which so many ran when it began (0: unknown). Where they share, those count who were there
    all along; in a queue, those who were there first: where these are not as many it says
    nothing."""
    n = _level(at_once)
    if max(abs(at_once - n), abs(at_once - (at_first or n))) > UNCLEAR * n:
        return evidence
    is_same = n == evidence.level or (
        min(n, evidence.level) >= MANY and abs(n - evidence.level) <= 1
    )
    run = evidence.run + 1 if is_same else 1
    evidence = evidence._replace(level=evidence.level if is_same else n, run=run)
    return seen(evidence, n, seconds, cores) if run >= 1 else evidence


def seen(evidence: Evidence, at_once: float, seconds: float, cores: float = 0.0) -> Evidence:
    """The evidence with one more attempt, which took `seconds` with so many running at once. When
    the last few are too far from what their level had before, all that was known is void; while
    that is in doubt they do not mix with it."""
    sample = (_level(at_once), log(max(seconds, SHORTEST)), cores)
    old, fresh = evidence.old, (*evidence.fresh, sample)
    apart = LONGER if surprise(evidence) > DOUBTFUL else FRESH
    while len(fresh) > apart:
        old, fresh = _aged(old, *fresh[0]), fresh[1:]
    found = evidence._replace(old=old, fresh=fresh, samples=evidence.samples + 1)
    return found if surprise(found) < CHANGED else _anew(found)


def _anew(evidence: Evidence) -> Evidence:
    """Nothing is known any more. What a look at another number has just shown is the first of the
    new world; where the number has been the same for long, those that run meanwhile belong to
    neither world."""
    run, fresh = evidence.run, evidence.fresh[-evidence.run :]
    if not 1 <= run <= FRESH:
        run, fresh = -evidence.fresh[-1][0], ()
    count = evidence.samples
    return Evidence({}, fresh, count, evidence.changes + 1, count, evidence.level, run)


def surprise(evidence: Evidence) -> float:
    """How far the last samples are from what their level had before, in standard deviations. One
    alone says nothing, and however far off, it does not count for more than a few."""
    fresh = _at_the_last_level(evidence)
    return _surprise(evidence.old, fresh) if len(fresh) > 1 else 0.0


def is_in_doubt(evidence: Evidence) -> bool:
    """Whether the last samples, or one of them, may be of another world: half of those that run
    when a lock goes still have waited for it."""
    fresh = _at_the_last_level(evidence)
    sets = [[each] for each in fresh] + [fresh]
    return any(_surprise(evidence.old, each) > DOUBTFUL for each in sets if each)


def _at_the_last_level(evidence: Evidence) -> list[tuple[int, float, float]]:
    return [each for each in evidence.fresh if each[0] == evidence.fresh[-1][0]]


def _surprise(old: Mapping[int, Level], fresh: Sequence[tuple[int, float, float]]) -> float:
    values = [value for _, value, _ in fresh]
    held_against = _comparable(old, fresh[0][0], sum(values) / len(values))
    return max((_distance(old, each, values) for each in held_against), default=0.0)


def _comparable(old: Mapping[int, Level], n: int, mean: float) -> list[Level]:
    """What n had before. If that is not known: fewer who took longer, more who were quicker, for
    whatever the law, nobody is quicker among more; and what it takes at least by those above."""
    known = {k: level for k, level in old.items() if level.weight >= KNOWN}
    if n in known:
        return [known[n]]
    found = [level for k, level in known.items() if (n - k) * (level.mean - mean) > 0]
    least = _least(known, n)
    return [*found, least] if least and mean < least.mean else found


def _least(known: Mapping[int, Level], n: int) -> Level | None:
    """What n take at least, by the next two numbers that are known: whatever the law, one more
    never costs less than the one before. A line through two that vary is less sure than either."""
    above = sorted(k for k in known if k > n)[:2]
    if len(above) < 2:
        return None
    (near, one), (far, two) = ((k, known[k]) for k in above)
    part = (near - n) / (far - near)
    first, second = (1 + part) * exp(one.mean), part * exp(two.mean)
    if first <= second:
        return None
    doubt = first**2 / one.weight + second**2 / two.weight
    return Level((first - second) ** 2 / doubt, log(first - second))


def _distance(old: Mapping[int, Level], before: Level, values: Sequence[float]) -> float:
    """The less is known of how much they vary, the further off is usual: as with Student's t."""
    count, usual = len(values), _variance(old)
    kept = [_within(old, before, value, FAR) for value in values]
    doubt = (usual / count + usual / before.weight + LAW**2) ** 0.5
    known, off = _varied(old), sum(kept) / count - before.mean
    return float((known * log(1 + (off / doubt) ** 2 / known)) ** 0.5)


def _within(old: Mapping[int, Level], before: Level, value: float, most: float) -> float:
    """The value, but no more standard deviations from what was before than that."""
    far: float = most * (_variance(old) * (1 + 1 / before.weight)) ** 0.5
    return min(max(value, before.mean - far), before.mean + far)


def believed(evidence: Evidence, claimed: Claimed | None = None) -> Belief:
    """What follows from the evidence, and from what somebody claimed."""
    levels = evidence.levels
    total = sum(level.weight for level in levels.values())
    within = sum(level.squares for level in levels.values())
    trust = 0.5 * (SPREAD_WEIGHT + max(total - 1, 0.0))
    least = SPREAD_WEIGHT * SPREAD**2 + within
    alone, between = _fitted(levels)
    logs = [
        point.log_prior - trust * log(least + each)
        for point, each in zip(grid(), between, strict=True)
    ]
    trusted = WORD**evidence.samples if claimed else 0.0
    if claimed is not None and trusted > FORGOTTEN:
        pairs = zip(logs, grid(), strict=True)
        logs = [each + trusted * _agreement(point, claimed) for each, point in pairs]
    top = max(logs)
    weights = [exp(each - top) for each in logs]
    return Belief(weights, alone, evidence, trusted > FORGOTTEN)


class Belief:
    """A weight for each point of the grid, and what they say together."""

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
        self.is_claimed = is_claimed  # somebody's word is part of it
        self.weights = [weights[index] / total for index in self._kept]
        self._alone = [exp(alone[index]) for index in self._kept]
        self.levels = evidence.levels
        known = [level.cores for level in self.levels.values() if level.weight >= 1]
        self._least = BUSIEST * min(known, default=0.0)
        self._times: dict[int, list[float]] = {}

    def times(self, n: int) -> list[float]:
        """The seconds for one attempt after another if n run at once, by each point."""
        if n not in self._times:
            every, least = shares(n), self._least
            pairs = zip(self._kept, self._alone, strict=True)
            times = [seconds * every[index] for index, seconds in pairs]
            self._times[n] = [each if each > least else least for each in times]
        return self._times[n]

    def time(self, n: int) -> float:
        """The same by the best guess."""
        return self.mean(self.times(n))

    def mean(self, values: Iterable[float]) -> float:
        total: float = sum(map(mul, self.weights, values))
        return total

    def weight(self, n: int) -> float:
        """How many samples there are of a number, as far as they have not faded."""
        level = self.levels.get(n)
        return 0.0 if level is None else level.weight

    def expected(self, n: int) -> float:
        """How many times as much n workers do as one, by the best guess."""
        return self.mean(a / b for a, b in zip(self.times(1), self.times(n), strict=True))

    def throughput(self, n: int) -> Range:
        """How many times as much n workers do as one."""
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
    return Range(mean, _quantile(found, 0.05), _quantile(found, 0.95))


def _quantile(found: list[tuple[float, float]], share: float) -> float:
    """Half the weight of a value is below it, and between two values lies a straight line: the
    truth is not on the grid."""
    last, before = found[0][0], 0.0
    reached = 0.0
    for value, w in found:
        middle = reached + 0.5 * w
        if middle >= share:
            return last + (value - last) * (share - before) / (middle - before)
        last, before = value, middle
        reached += w
    return last


def _fitted(levels: Mapping[int, Level]) -> tuple[list[float], list[float]]:
    """For each point, how long one takes alone (its log), and how far the levels' means are
    then from where it has them: the weighted variance of what is left, times the weight. A level
    cannot weigh more than the law is right."""
    off = LAW**2 / _variance(levels)
    weights = {n: level.weight / (1 + level.weight * off) for n, level in levels.items()}
    total = sum(weights.values())
    first = second = [0.0] * len(grid())
    for n, level in levels.items():
        share, mean = weights[n] / total, level.mean
        offsets = [mean - ratio for ratio in log_ratios(n)]
        first = [a + share * b for a, b in zip(first, offsets, strict=True)]
        second = [a + share * b * b for a, b in zip(second, offsets, strict=True)]
    return first, [max(total * (b - a * a), 0.0) for a, b in zip(first, second, strict=True)]


@lru_cache(maxsize=MOST_AT_ONCE)
def shares(n: int) -> tuple[float, ...]:
    """For each point, the time for one attempt after another among n, as a multiple of alone."""
    return tuple(point.ratio(n) / n for point in grid())


@lru_cache(maxsize=MOST_AT_ONCE)
def log_ratios(n: int) -> tuple[float, ...]:
    return tuple(log(point.ratio(n)) for point in grid())


def _agreement(point: Point, claimed: Claimed) -> float:
    off = (1 - point.ratio(claimed.at) / claimed.at) - claimed.benefit
    return -0.5 * (claimed.weight + 1) * log(1 + (off / DOUBT) ** 2 / claimed.weight)


def _variance(levels: Mapping[int, Level]) -> float:
    """How much the logs of durations vary within a level."""
    within = sum(each.squares for each in levels.values())
    return (SPREAD_WEIGHT * SPREAD**2 + within) / _varied(levels)


def _varied(levels: Mapping[int, Level]) -> float:
    """From how many differences that is known."""
    return SPREAD_WEIGHT + sum(max(each.weight - 1, 0.0) for each in levels.values())


def _aged(levels: Mapping[int, Level], n: int, value: float, cores: float) -> dict[int, Level]:
    """All levels a little weaker, and one with a sample more."""
    faded = {k: _faded(level, FADE) for k, level in levels.items()}
    kept = {k: level for k, level in faded.items() if level.weight > FORGOTTEN}
    before = kept.get(n, Level())
    if before.weight >= KNOWN:
        value = _within(kept, before, value, ODD)
    return {**kept, n: _added(before, value, cores)}


def _level(at_once: float) -> int:
    return min(max(1, round(at_once)), MOST_AT_ONCE)


def _faded(level: Level, keep: float) -> Level:
    return level._replace(weight=level.weight * keep, squares=level.squares * keep)


def _added(level: Level, value: float, cores: float) -> Level:
    weight = level.weight + 1
    mean = level.mean + (value - level.mean) / weight
    squares = level.squares + (value - level.mean) * (value - mean)
    return Level(weight, mean, squares, level.cores + (cores - level.cores) / weight)
