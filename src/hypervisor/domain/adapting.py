"""How many workers a type of task gets under the strategy `adaptive`.

It settles on the fewest that do nearly as much as the best. Until it is sure of that
it looks where it would pay to know more: at more while those may do notably more, at
fewer while those may do as much. A look costs a few attempts; what is far from the
best by all that is known is not looked at.
"""

from __future__ import annotations

from typing import NamedTuple

from hypervisor.domain.scaling import Belief, Range

NEARLY = 0.95  # of the best throughput is as good as the best
NOTABLY = 1.1
WORTH = 0.15  # of the time saved: for less, one after the other is as good and costs nothing
DOUBT = 0.2  # a chance smaller than this is not worth a look
LIKELY = 0.35
STALE = 1.5  # samples that are left of a level after a long time: the world may have changed, …
HARDLY = 0.03  # … so this chance is enough then
SHOWN = 0.75  # how likely it must be that parallel is worth it
FEWEST = 5.0  # samples of a level that make it known
LONG = 30.0
FEW = 1.0
SMOOTH = 0.7  # of what so many could do
SURE = 0.85
EARLY = 30  # samples
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class Choice(NamedTuple):
    """So many workers, and why; `settled` unless that is to learn something."""

    workers: int
    settled: bool
    why: str


def choose(belief: Belief, limit: int, first: int = 0, now: int = 0) -> Choice:
    """How many workers the next attempts shall have, of at most `limit`; `first` (half of
    them) while nothing is known. The number there is `now` stays unless another is better."""
    if limit <= 1:
        return Choice(1, True, "one is the limit")
    if not belief.evidence.samples:
        return _unseen(belief, limit, first or (limit + 1) // 2)
    if other := _second(belief, limit):
        return other
    best = favourite(belief, limit, now)
    if _is_in_the_dark(belief, best):
        return Choice(2, False, f"to learn: {best} hinder each other, fewer were hardly seen")
    for n in (_above(best, limit), _below(best), 1):
        if n > best:
            chance = belief.probability(n, best, NOTABLY)
            said = f"{n} may do notably more than {best} ({_percent(chance)} likely)"
        elif n < best:
            chance = belief.probability(n, best, NEARLY if n > 1 else 1 - WORTH)
            said = f"{n} may do as much as {best} ({_percent(chance)} likely)"
        else:
            continue
        if _pays_to_look(belief, n, best, chance):
            return Choice(n, False, f"to learn: {said}")
    return Choice(best, True, explained(belief, best, limit))


def favourite(belief: Belief, limit: int, now: int = 0) -> int:
    """The fewest that do nearly as much as the best; one where parallel is not worth it."""
    steps = levels(limit)
    top = max(steps, key=lambda n: (belief.expected(n), -n))
    is_seen = _weight(belief, 1) + _weight(belief, 2) >= FEW
    if belief.probability(1, top, 1 - WORTH) > (1 - SHOWN if is_seen else 0.5):
        return 1
    enough = [n for n in steps if belief.expected(n) >= NEARLY * belief.expected(top)]
    return now if now in enough and now < 2 * enough[0] else enough[0]


def levels(limit: int) -> list[int]:
    """The numbers of workers that are thought of, up to a limit."""
    return [n for n in STEPS if n < limit] + [limit]


def explained(belief: Belief, chosen: int, limit: int) -> str:
    """Why so many, in a sentence with its figures."""
    steps = levels(limit)
    if chosen > 1:
        said = f"{chosen} at once save {_range(belief.benefit(chosen))} of the time"
        more = [n for n in steps if n > chosen]
        return f"{said}; more would do hardly more" if more else said
    top = max(steps, key=lambda n: (belief.expected(n), -n))
    saved = belief.benefit(top if top > 1 else min(2, limit))
    if saved.mean <= 0.02:
        return f"one after the other: nothing is gained in parallel ({_range(saved)})"
    return (
        f"one after the other: {top} at once would save {_range(saved)} of the time; "
        f"below {_percent(WORTH)} that is not worth it"
    )


def _unseen(belief: Belief, limit: int, first: int) -> Choice:
    """No sample yet: what somebody claimed, or the first guess."""
    if not belief.is_claimed:
        return Choice(min(first, limit), False, "nothing is known yet")
    best = favourite(belief, limit)
    return Choice(best, False, f"as was claimed: {explained(belief, best, limit)}")


def _second(belief: Belief, limit: int) -> Choice | None:
    """One number alone says nothing: with twice as many the difference shows, and where there
    is none nothing is lost."""
    evidence = belief.evidence
    seen = [n for n in evidence.levels if _weight(belief, n) >= FEW]
    if len(seen) != 1 or evidence.samples - evidence.changed > EARLY:
        return None
    n = min(2 * seen[0], limit) if seen[0] < limit else max(limit // 2, 1)
    return Choice(n, False, f"to learn: only {seen[0]} at once were seen so far")


def _is_in_the_dark(belief: Belief, best: int) -> bool:
    """Many hinder each other, and what few would do is only concluded from that. Where many do
    not, few cannot do better."""
    few = _weight(belief, 1) + _weight(belief, 2)
    if best <= 2 or few >= FEW or _weight(belief, best) < FEWEST:
        return False
    return belief.chance(lambda p: p.ratio(best) * SMOOTH > 1) > SURE


def _pays_to_look(belief: Belief, n: int, best: int, chance: float) -> bool:
    """Where little is known a fair chance is enough; else only as long as the two are about
    equally likely and the one is known less well than the other."""
    known, of_best = _weight(belief, n), _weight(belief, best)
    if known < STALE:
        return chance > (HARDLY if of_best > LONG else DOUBT)
    if known < (2 * FEWEST if n == 1 else FEWEST):
        return chance > DOUBT
    return chance > LIKELY and known < of_best


def _above(best: int, limit: int) -> int:
    return next((n for n in STEPS if n >= 2 * best and n < limit), limit)


def _below(best: int) -> int:
    return next((n for n in reversed(STEPS) if 2 * n <= best), 1)


def _weight(belief: Belief, n: int) -> float:
    level = belief.evidence.levels.get(n)
    return 0.0 if level is None else level.weight


def _range(saved: Range) -> str:
    return f"{_percent(saved.mean)} ({_percent(saved.low)} to {_percent(saved.high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
