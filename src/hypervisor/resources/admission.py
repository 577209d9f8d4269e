"""Admission by fit: how many more attempts fit into memory.

Free memory is what remains below the ceiling once all running attempts have grown to their expected
peak. While that peak is unknown, the first attempts are a trial: few at a time while they grow, the
rest when they have stopped growing.
"""

from collections.abc import Iterable, Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.resources.zones import Load

MIB = 1 << 20
UNKNOWN = 4096 * MIB  # assumed for an attempt of an unknown type
MIN_SIZE = 64 * MIB
SETTLE_MS = 2000
NOTABLE_GROWTH = 1.1
TOLERANCE = 0.025  # of the limit: a smaller overrun does not drain a worker


class Footprint(NamedTuple):
    """The expected peak memory of an attempt (None: unknown), and what it uses now."""

    expected: int | None
    current: int


class Trial(NamedTuple):
    """Observations of attempts with unknown needs: since when, and how big one has become.

    `mark` follows the biggest in steps; the time of the last step shows whether it is growing.
    """

    since: int
    biggest: int = 0
    mark: int = 0
    marked_at: int = 0


class Guess(NamedTuple):
    """The assumed need of attempts with unknown needs: of a running one, and of the next.

    `most` is how many of them may run at once.
    """

    running: int = UNKNOWN
    next: int = UNKNOWN
    most: int | None = 1


NOTHING_SEEN = Guess()


def observe_trial(trial: Trial | None, currents: Iterable[int], now: int) -> Trial:
    """The trial after another measurement of its attempts' memory."""
    if trial is None:
        trial = Trial(now, marked_at=now)
    biggest = max(trial.biggest, *currents, 0)
    if biggest > trial.mark * NOTABLE_GROWTH:
        return Trial(trial.since, biggest, biggest, now)
    return trial._replace(biggest=biggest)


def guess_from(trial: Trial | None, now: int) -> Guess:
    """The guess from a trial so far.

    How long the attempts will keep growing is unknown; the best guess is as
    long again as they have run. So a growing one may double, and another one
    may start each time the age has doubled.
    """
    age = 0 if trial is None else now - trial.since
    if trial is None or age < SETTLE_MS:
        return NOTHING_SEEN
    if now - trial.marked_at >= max(SETTLE_MS, age // 4):
        return Guess(trial.biggest, max(MIN_SIZE, trial.biggest * 9 // 8), None)
    double = max(MIN_SIZE, trial.biggest * 2)
    return Guess(double, double, 1 + (age // SETTLE_MS).bit_length())


def free(load: Load, running: Sequence[Footprint], ceiling: float) -> int:
    """Bytes left below the ceiling once all attempts have grown; negative if they will not fit."""
    growth = sum(max(0, (peak or 0) - current) for peak, current in running)
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
    """How many of the wanted starts fit; at least one if nothing runs, or work would stop."""
    if wanted <= 0 or load.memory_limit <= 0:
        return max(0, wanted)
    if expected is not None:
        need = likely_need(expected, running)
        count = _count(load, with_assumed_need(running, guess.running), need, ceiling)
    else:
        pessimistic = max(UNKNOWN, guess.next)
        count = max(
            _count(load, with_assumed_need(running, pessimistic), pessimistic, ceiling),
            _count_by_guess(load, running, ceiling, guess),
        )
    return min(wanted, max(count, 0 if running else 1))


def workers_to_drain(
    load: Load, running: Sequence[Footprint], expected: int, ceiling: float
) -> int:
    """How many workers must not claim again, because what is running will not fit."""
    if load.memory_limit <= 0 or expected <= 0:
        return 0
    missing = -free(load, running, ceiling + TOLERANCE)
    return max(0, min(len(running) - 1, -(-missing // expected)))


def likely_need(expected: int, running: Iterable[Footprint]) -> int:
    """The likely need of the next attempt: it may exceed its peak like the running ones."""
    overruns = (current - peak for peak, current in running if peak is not None)
    return expected + max(0, max(overruns, default=0))


def with_assumed_need(running: Sequence[Footprint], need: int) -> list[Footprint]:
    """The same, with that need where it is unknown."""
    return [Footprint(need if peak is None else peak, current) for peak, current in running]


def _count_by_guess(load: Load, running: Sequence[Footprint], ceiling: float, guess: Guess) -> int:
    count = _count(load, with_assumed_need(running, guess.running), guess.next, ceiling)
    if guess.most is None:
        return count
    return min(count, guess.most - sum(peak is None for peak, _ in running))


def _count(load: Load, running: Sequence[Footprint], expected: int, ceiling: float) -> int:
    return max(0, free(load, running, ceiling) // max(1, expected))
