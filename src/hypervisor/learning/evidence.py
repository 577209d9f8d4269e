"""Samples of attempts of a type of task, by how many ran at once.

Old samples fade. The last few are kept apart and compared with earlier ones: if they differ too
much, conditions have changed, and all earlier samples are discarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

from hypervisor.core.records import NamedTuple

LAW = 0.06  # how far off the law may be, as a share
FADE = 0.985  # the weight of a sample after each later one
FORGOTTEN = 0.05
SPREAD = 0.15  # the assumed variation of durations, as a share, …
SPREAD_WEIGHT = 4.0  # … which weighs as much as this many samples
FRESH = 4  # samples that are compared with earlier ones, …
LONGER = 8  # … and how many while they are in doubt
DOUBTFUL = 2.2  # a difference of this many standard deviations may be chance, …
CHANGED = 3.4  # … and one of this many is not
FAR = 4.0  # standard deviations to which a fresh sample is limited, …
ODD = 2.5  # … and an older one: an outlier says little about the usual variation
UNCLEAR = 0.12  # further from a whole number means that the number changed during the attempt
MANY = 4  # from this number on, one more or less makes no difference
KNOWN = 1.5  # samples that a level needs before others are compared with it
MAX_CONCURRENT = 256
MIN_LENGTH = 1e-4


class Level(NamedTuple):
    """Attempts at one level of concurrency: how many, the mean of their log durations, the sum
    of squares around it, and the mean CPU seconds of one, divided by the cores."""

    weight: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    cores: float = 0.0


class Evidence(NamedTuple):
    """Everything known about a type. The last few samples are kept apart, to be compared with
    earlier ones."""

    old: Mapping[int, Level] = {}
    fresh: tuple[tuple[int, float, float], ...] = ()  # how many at once, log seconds, cores
    samples: int = 0
    changes: int = 0  # how often conditions have changed …
    changed: int = 0  # … and at which sample the last time
    level: int = 0  # the current number at once, …
    run: int = 0  # … and the samples since it last changed; below 1 while they do not count

    @property
    def levels(self) -> dict[int, Level]:
        levels = dict(self.old)
        for n, value, cores in self.fresh:
            levels[n] = _added(levels.get(n, Level()), value, cores)
        return levels


def add_attempt(
    evidence: Evidence, at_once: float, seconds: float, cores: float = 0.0, at_first: int = 0
) -> Evidence:
    """The evidence with the next attempt that ended. `cores` is its CPU time divided by the cores;
    `at_first` is how many ran when it began (0: unknown). If attempts share a resource, the number
    during the attempt matters; in a queue, the number at its start: if the two differ, the attempt
    is ignored."""
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
    """The evidence with one more attempt, which took `seconds` with `at_once` running. If the last
    few differ too much from earlier ones of their level, those are discarded; while that is in
    doubt, they are kept apart."""
    sample = (_level(at_once), log(max(seconds, MIN_LENGTH)), cores)
    old, fresh = evidence.old, (*evidence.fresh, sample)
    apart = LONGER if surprise(evidence) > DOUBTFUL else FRESH
    while len(fresh) > apart:
        old, fresh = _aged(old, *fresh[0]), fresh[1:]
    updated = evidence._replace(old=old, fresh=fresh, samples=evidence.samples + 1)
    return updated if surprise(updated) < CHANGED else _start_over(updated)


def _start_over(evidence: Evidence) -> Evidence:
    """Discard old samples. Those of a number that was just tried are the first new ones; if the
    number has been the same for long, attempts that are running now belong to neither."""
    run, fresh = evidence.run, evidence.fresh[-evidence.run :]
    if not 1 <= run <= FRESH:
        run, fresh = -evidence.fresh[-1][0], ()
    count = evidence.samples
    return Evidence({}, fresh, count, evidence.changes + 1, count, evidence.level, run)


def surprise(evidence: Evidence) -> float:
    """How far the last samples are from earlier ones of their level, in standard deviations. One
    alone is not enough, and the weight of an outlier is limited."""
    fresh = _at_the_last_level(evidence)
    return _surprise(evidence.old, fresh) if len(fresh) > 1 else 0.0


def is_in_doubt(evidence: Evidence) -> bool:
    """Whether the last samples, or one of them, may be from changed conditions: half of those that
    run when a lock disappears have still waited for it."""
    fresh = _at_the_last_level(evidence)
    sets = [[samples] for samples in fresh] + [fresh]
    return any(_surprise(evidence.old, samples) > DOUBTFUL for samples in sets if samples)


def _at_the_last_level(evidence: Evidence) -> list[tuple[int, float, float]]:
    return [sample for sample in evidence.fresh if sample[0] == evidence.fresh[-1][0]]


def _surprise(old: Mapping[int, Level], fresh: Sequence[tuple[int, float, float]]) -> float:
    values = [value for _, value, _ in fresh]
    comparable = _comparable(old, fresh[0][0], sum(values) / len(values))
    return max((_distance(old, level, values) for level in comparable), default=0.0)


def _comparable(old: Mapping[int, Level], n: int, mean: float) -> list[Level]:
    """Earlier levels to compare with: n itself, if known. Otherwise lower ones that took longer
    and higher ones that were faster, because no attempt gets faster among more; and the minimum
    that follows from higher levels."""
    known = {k: level for k, level in old.items() if level.weight >= KNOWN}
    if n in known:
        return [known[n]]
    levels = [level for k, level in known.items() if (n - k) * (level.mean - mean) > 0]
    least = _least(known, n)
    return [*levels, least] if least and mean < least.mean else levels


def _least(known: Mapping[int, Level], n: int) -> Level | None:
    """The least time at n, from the next two known numbers: each further attempt costs at least as
    much as the one before. A line through two uncertain points is less certain than either."""
    above = sorted(k for k in known if k > n)[:2]
    if len(above) < 2:
        return None
    (near, nearer), (far, further) = ((k, known[k]) for k in above)
    part = (near - n) / (far - near)
    first, second = (1 + part) * exp(nearer.mean), part * exp(further.mean)
    if first <= second:
        return None
    doubt = first**2 / nearer.weight + second**2 / further.weight
    return Level((first - second) ** 2 / doubt, log(first - second))


def _distance(old: Mapping[int, Level], before: Level, values: Sequence[float]) -> float:
    """The less is known about the variation, the more distance is normal, as with Student's t."""
    count, usual = len(values), variance(old)
    kept = [_within(old, before, value, FAR) for value in values]
    doubt = (usual / count + usual / before.weight + LAW**2) ** 0.5
    known, off = _varied(old), sum(kept) / count - before.mean
    return float((known * log(1 + (off / doubt) ** 2 / known)) ** 0.5)


def _within(old: Mapping[int, Level], before: Level, value: float, limit: float) -> float:
    """The value, limited to that many standard deviations from before."""
    far: float = limit * (variance(old) * (1 + 1 / before.weight)) ** 0.5
    return min(max(value, before.mean - far), before.mean + far)


def variance(levels: Mapping[int, Level]) -> float:
    """How much the logs of durations vary within a level."""
    within = sum(level.squares for level in levels.values())
    return (SPREAD_WEIGHT * SPREAD**2 + within) / _varied(levels)


def _varied(levels: Mapping[int, Level]) -> float:
    """The degrees of freedom of that variance."""
    return SPREAD_WEIGHT + sum(max(level.weight - 1, 0.0) for level in levels.values())


def _aged(levels: Mapping[int, Level], n: int, value: float, cores: float) -> dict[int, Level]:
    """All levels a little weaker, and one with another sample."""
    faded = {k: _faded(level, FADE) for k, level in levels.items()}
    kept = {k: level for k, level in faded.items() if level.weight > FORGOTTEN}
    before = kept.get(n, Level())
    if before.weight >= KNOWN:
        value = _within(kept, before, value, ODD)
    return {**kept, n: _added(before, value, cores)}


def _level(at_once: float) -> int:
    return min(max(1, round(at_once)), MAX_CONCURRENT)


def _faded(level: Level, keep: float) -> Level:
    return level._replace(weight=level.weight * keep, squares=level.squares * keep)


def _added(level: Level, value: float, cores: float) -> Level:
    weight = level.weight + 1
    mean = level.mean + (value - level.mean) / weight
    squares = level.squares + (value - level.mean) * (value - mean)
    return Level(weight, mean, squares, level.cores + (cores - level.cores) / weight)
