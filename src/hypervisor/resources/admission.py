"""Admission by fit: how many more attempts the memory can bear.

Free is what stays below the ceiling after all that runs has grown to what it
is expected to need. Where nobody knows the need yet, the first attempts are a
trial: few at a time while they grow, the rest when they have settled.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hypervisor.resources.zones import Load

MIB = 1 << 20
UNKNOWN = 4096 * MIB  # what an attempt that nobody has seen yet is given room for
SMALLEST = 64 * MIB
SETTLE_MS = 2000
NOTABLE_GROWTH = 1.1
TOLERANCE = 0.025  # of the limit: an overrun this small is no reason to drain a worker


class Footprint(NamedTuple):
    """The memory an attempt is expected to need at its peak (None: unknown), and uses now."""

    expected: int | None
    current: int


class Trial(NamedTuple):
    """What was seen of attempts with unknown needs: since when, and how big one has become.

    `mark` follows the biggest in steps; the time of the last step tells whether it grows.
    """

    since: int
    biggest: int = 0
    mark: int = 0
    marked_at: int = 0


class Guess(NamedTuple):
    """What an attempt with an unknown need may need: a running one, and the next to start.

    `most` is how many of them may run at once.
    """

    running: int = UNKNOWN
    next: int = UNKNOWN
    most: int | None = 1


NOTHING_SEEN = Guess()


def observe_trial(trial: Trial | None, currents: Iterable[int], now: int) -> Trial:
    """The trial after another look at the memory that its attempts use."""
    if trial is None:
        trial = Trial(now, marked_at=now)
    biggest = max(trial.biggest, *currents, 0)
    if biggest > trial.mark * NOTABLE_GROWTH:
        return Trial(trial.since, biggest, biggest, now)
    return trial._replace(biggest=biggest)


def guess_from(trial: Trial | None, now: int) -> Guess:
    """What a trial tells by now.

    How long the attempts will still grow is unknown; as with anything of which
    only the age is known, the best guess is as long again. So what grows may
    double, and another one may start each time the age has doubled.
    """
    age = 0 if trial is None else now - trial.since
    if trial is None or age < SETTLE_MS:
        return NOTHING_SEEN
    if now - trial.marked_at >= max(SETTLE_MS, age // 4):
        return Guess(trial.biggest, max(SMALLEST, trial.biggest * 9 // 8), None)
    double = max(SMALLEST, trial.biggest * 2)
    return Guess(double, double, 1 + (age // SETTLE_MS).bit_length())


def free(load: Load, running: Sequence[Footprint], ceiling: float) -> int:
    """Bytes left below the ceiling once all that runs has grown; negative if it will not fit."""
    growth = sum(max(0, (each.expected or 0) - each.current) for each in running)
    return int(ceiling * load.memory_limit) - load.memory_used - growth


def starts_that_fit(
    load: Load,
    running: Sequence[Footprint],
    expected: int | None,
    wanted: int,
    *,
    ceiling: float,
    guess: Guess = NOTHING_SEEN,
) -> int:
    """How many of the wanted starts fit; one always does if nothing runs, or work would stop."""
    if wanted <= 0 or load.memory_limit <= 0:
        return max(0, wanted)
    if expected is not None:
        need = likely_need(expected, running)
        count = _count(load, with_assumed_need(running, guess.running), need, ceiling)
    else:
        most = max(UNKNOWN, guess.next)
        count = max(
            _count(load, with_assumed_need(running, most), most, ceiling),
            _count_by_guess(load, running, ceiling, guess),
        )
    return min(wanted, max(count, 0 if running else 1))


def workers_to_drain(
    load: Load, running: Sequence[Footprint], expected: int, ceiling: float
) -> int:
    """How many of the running should be the last of their worker, for what runs will not fit."""
    if load.memory_limit <= 0 or expected <= 0:
        return 0
    lacking = -free(load, running, ceiling + TOLERANCE)
    return max(0, min(len(running) - 1, -(-lacking // expected)))


def likely_need(expected: int, running: Iterable[Footprint]) -> int:
    """What the next one is likely to need: it may overrun its peak as the running ones do."""
    overruns = (each.current - each.expected for each in running if each.expected is not None)
    return expected + max(0, max(overruns, default=0))


def with_assumed_need(running: Sequence[Footprint], need: int) -> list[Footprint]:
    """The same with that need wherever none is known."""
    return [each if each.expected is not None else each._replace(expected=need) for each in running]


def _count_by_guess(load: Load, running: Sequence[Footprint], ceiling: float, guess: Guess) -> int:
    count = _count(load, with_assumed_need(running, guess.running), guess.next, ceiling)
    if guess.most is None:
        return count
    return min(count, guess.most - sum(each.expected is None for each in running))


def _count(load: Load, running: Sequence[Footprint], expected: int, ceiling: float) -> int:
    return max(0, free(load, running, ceiling) // max(1, expected))
