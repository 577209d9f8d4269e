"""Samples of attempts by how many ran at once: what is remembered of a type of task.

Old samples fade. The last few are kept apart and compared with those before: when they are too
far off, the world has changed, and all that was known is void.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import NamedTuple

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
UNCLEAR = 0.12  # further from a whole number, and the number changed meanwhile
MANY = 4  # so many and one more or less are about the same
KNOWN = 1.5  # samples that a level needs before anything can surprise
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


def add_attempt(
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
    return add_sample(evidence, n, seconds, cores) if run >= 1 else evidence


def add_sample(evidence: Evidence, at_once: float, seconds: float, cores: float = 0.0) -> Evidence:
    """The evidence with one more attempt, which took `seconds` with so many running at once. When
    the last few are too far from what their level had before, all that was known is void; while
    that is in doubt they do not mix with it."""
    sample = (_level(at_once), log(max(seconds, SHORTEST)), cores)
    old, fresh = evidence.old, (*evidence.fresh, sample)
    apart = LONGER if surprise(evidence) > DOUBTFUL else FRESH
    while len(fresh) > apart:
        old, fresh = _aged(old, *fresh[0]), fresh[1:]
    found = evidence._replace(old=old, fresh=fresh, samples=evidence.samples + 1)
    return found if surprise(found) < CHANGED else _start_over(found)


def _start_over(evidence: Evidence) -> Evidence:
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
    count, usual = len(values), variance(old)
    kept = [_within(old, before, value, FAR) for value in values]
    doubt = (usual / count + usual / before.weight + LAW**2) ** 0.5
    known, off = _varied(old), sum(kept) / count - before.mean
    return float((known * log(1 + (off / doubt) ** 2 / known)) ** 0.5)


def _within(old: Mapping[int, Level], before: Level, value: float, most: float) -> float:
    """The value, but no more standard deviations from what was before than that."""
    far: float = most * (variance(old) * (1 + 1 / before.weight)) ** 0.5
    return min(max(value, before.mean - far), before.mean + far)


def variance(levels: Mapping[int, Level]) -> float:
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
