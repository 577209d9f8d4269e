"""How many workers a type of task gets under the strategy `adaptive`.

What so many workers cost is the time they take for one attempt after another, and a toll:
parallel at all has to save 15 % of the time, and twice as many have to do 4 % more. It
settles on the number that costs least. Until it is sure it looks where it would pay to know
more: what may be gained in the attempts to come, against what may be lost while it looks.
Steps are small, so that no look can cost much, and a look lasts until it has told something.
Later it looks again whether more pay by now: often where that costs nothing, as with a lock.
"""

from __future__ import annotations

from typing import NamedTuple

from hypervisor.learning.evidence import MANY, is_in_doubt
from hypervisor.learning.posterior import Posterior, Range

WORTH = 0.15  # of the time saved: for less, one after the other is as good and disturbs nobody
EACH = 0.06  # the power of the number of workers in the toll
HORIZON = 30  # attempts in which what was learned pays
LOOK = 2.0  # attempts that a look takes, for each worker
SURPLUS = 1.0  # attempts that a look must bring, at least
BEYOND = 0.5  # of what a look tells about the numbers behind that one
TOLD = 2  # samples until a look has told something
SAME = 1.03  # what costs so little more is as good
HALF = 0.5  # known half as well as the best is known well enough
NEARLY = 0.15  # of what the best look below is worth: then rather further down, which tells more
BELOW = 4  # times fewer than were seen it looks at, at most
FEW = 2.0
AGAIN = 2  # attempts, then it looks again whether more pay by now …
LASTING = 1 / 15  # … or so many of all that it has seen of this world: what lasted, lasts …
SHARE = 0.05  # … and later where looking may cost more than this share of the time
REACH = 4  # times as many it looks at again, at most
EARLY = 20  # samples
LEFT = 0.9  # of a sample
HINDERED = 1.4
SURE = 0.85
WELL = 2.5
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class Choice(NamedTuple):
    """So many workers, and why; `settled` unless that is to learn something. `best` is what it
    thinks best by now."""

    workers: int
    settled: bool
    why: str
    best: int = 1


def choose(posterior: Posterior, limit: int, first: int = 0, now: int = 0) -> Choice:
    """How many workers the next attempts shall have, of at most `limit`; `first` (half of
    them) while nothing is known. The number there is `now` stays until it has told something."""
    if limit <= 1:
        return Choice(1, True, "one is the limit")
    if not posterior.levels:
        return _unseen(posterior, limit, first or (limit + 1) // 2, now)
    return _Chooser(posterior, limit, now).choice()


def favourite(posterior: Posterior, limit: int, now: int = 0) -> int:
    """The number that costs least; the one there is `now`, if it is as good."""
    steps = levels(limit)
    best = min(steps, key=lambda n: posterior.time(n) * toll(n))
    if min(now, best) <= 1 or now not in steps:
        return best
    return (
        now if posterior.time(now) * toll(now) <= SAME * posterior.time(best) * toll(best) else best
    )


def toll(n: int) -> float:
    return 1.0 if n == 1 else float(n**EACH) / (1 - WORTH)


def levels(limit: int) -> list[int]:
    """The numbers of workers that are thought of, up to a limit."""
    return [n for n in STEPS if n < limit] + [limit]


def explained(posterior: Posterior, chosen: int, limit: int) -> str:
    """Why so many, in a sentence with its figures."""
    steps = levels(limit)
    if chosen > 1:
        said = f"{chosen} at once save {_range(posterior.benefit(chosen))} of the time"
        more = [n for n in steps if n > chosen]
        return f"{said}; more would do hardly more" if more else said
    top = min(steps, key=lambda n: (posterior.time(n), n))
    saved = posterior.benefit(top if top > 1 else min(2, limit))
    if saved.mean <= 0.02:
        return f"one after the other: nothing is gained in parallel ({_range(saved)})"
    return (
        f"one after the other: {top} at once would save {_range(saved)} of the time, "
        "which is not worth it"
    )


class _Chooser:
    """One choice, rule by rule: the first that has something to say decides."""

    def __init__(self, posterior: Posterior, limit: int, now: int) -> None:
        self.posterior, self.limit, self.now = posterior, limit, now
        self.steps = levels(limit)
        self.best = favourite(posterior, limit)
        self.costs = {n: [toll(n) * time for time in posterior.times(n)] for n in self.steps}
        seen = [n for n, level in posterior.levels.items() if level.weight > HALF]
        most, fewest = max(seen, default=1), min(seen, default=1)
        self.near = [n for n in self.steps if fewest / BELOW <= n <= max(most + 2, 1.5 * most)]

    def choice(self) -> Choice:
        return (
            self._explore_current()
            or self._second()
            or self._look()
            or self._explore_few()
            or self._explore_next()
            or self._again()
            or self._settled()
        )

    def _explore_current(self) -> Choice | None:
        evidence = self.posterior.evidence
        is_odd = is_in_doubt(evidence)
        if not 0 < self.now <= self.limit:
            return None
        if self._is_at(self.now) and evidence.run >= TOLD and not is_odd:
            return None
        why = "what was seen last is not as it was" if is_odd else "not seen for long enough"
        return self._to_learn(self.now, f"{self.now} at once: {why}")

    def _second(self) -> Choice | None:
        """One number alone says nothing: with more the difference shows, and where there is none
        nothing is lost."""
        evidence = self.posterior.evidence
        seen = [n for n in self.posterior.levels if self.posterior.weight(n) >= LEFT]
        more = self.near[-1] if self.near else 0
        if len(seen) != 1 or evidence.samples - evidence.changed > EARLY or seen[0] >= more:
            return None
        return self._to_learn(more, f"only {seen[0]} at once were seen so far")

    def _look(self) -> Choice | None:
        """What seems best first; then where it pays most, more workers before fewer."""
        if self.best in self.near and self.posterior.weight(self.best) < LEFT:
            if favourite(self.posterior, self.limit, self.now) == self.best:
                return None  # it goes there anyway
            return self._to_learn(self.best, f"{self.best} seem best and were hardly seen")
        known = max(HALF * self.posterior.weight(self.best), FEW)
        other = [n for n in self.near if n != self.best and self.posterior.weight(n) <= known]
        worth = {n: self._worth(n) for n in other}
        above = [n for n in other if n > self.best and worth[n] > 0]
        n = max(above or other, key=lambda n: worth[n], default=0)
        if not n or worth[n] <= SURPLUS * self.posterior.mean(self.costs[self.best]):
            return None
        if n < self.best:
            n = min(m for m in other if worth[m] >= NEARLY * worth[n])
        chance = self._chance(n, self.best)
        better = "do notably more than" if n > self.best else "do nearly as much as"
        return self._to_learn(n, f"{n} may {better} {self.best} ({_percent(chance)} likely)")

    def _chance(self, n: int, other: int) -> float:
        """How likely n cost less than the other."""
        both = zip(self.costs[n], self.costs[other], strict=True)
        return self.posterior.mean(float(here < there) for here, there in both)

    def _worth(self, n: int) -> float:
        """What a look at n may bring in the attempts to come, less what it may cost."""
        best, there = self.costs[self.best], self.costs[n]
        behind = [m for m in self.steps if (m <= n if n < self.best else m >= n)]
        far = map(min, *(self.costs[m] for m in behind)) if len(behind) > 1 else iter(there)
        gain = self.posterior.mean(
            (1 - BEYOND) * max(b - t, 0.0) + BEYOND * max(b - f, 0.0)
            for b, t, f in zip(best, there, far, strict=True)
        )
        loss = self.posterior.mean(max(t - b, 0.0) for b, t in zip(best, there, strict=True))
        return HORIZON * gain - LOOK * (n + 1) * loss

    def _explore_few(self) -> Choice | None:
        """Many hinder each other, and what few would do is only concluded from that."""
        few = self.posterior.weight(1) + self.posterior.weight(2)
        if self.best <= 2 or few >= LEFT or self.posterior.weight(self.best) < WELL:
            return None
        if self.posterior.chance(lambda p: p.ratio(self.best) > HINDERED) <= SURE:
            return None
        n = next((each for each in self.near if each >= 2), self.best)
        said = f"{self.best} hinder each other, fewer were hardly seen"
        return self._to_learn(n, said) if n < self.best else None

    def _explore_next(self) -> Choice | None:
        """The best is further than one step from what was seen, and not sure."""
        if not self.near or self.best <= self.near[-1]:
            return None
        if self._chance(self.best, self.near[-1]) > SURE:
            return None
        return self._to_learn(self.near[-1], f"on the way to {self.best}, step by step")

    def _again(self) -> Choice | None:
        """The world may have changed: after a while look whether more pay by now. At as many as
        the look is worth: that a lock is gone shows best among four, who cost nothing there."""
        home = favourite(self.posterior, self.limit, self.now)
        evidence = self.posterior.evidence
        lasted = evidence.samples - evidence.changed
        if not self._is_at(home) or evidence.run < max(AGAIN, LASTING * lasted):
            return None
        above = [n for n in self.near if home < n <= REACH * home]
        cheap = [n for n in above if self._price(n, home) <= SHARE * evidence.run]
        if not cheap:
            return None
        return self._to_learn(cheap[-1], f"whether {cheap[-1]} do more than {home} by now")

    def _price(self, n: int, home: int) -> float:
        """What a look at n may cost, in attempts as they are at home."""
        here, there = self.posterior.times(home), self.posterior.times(n)
        slower = self.posterior.mean(max(t - h, 0.0) for h, t in zip(here, there, strict=True))
        return LOOK * (n + 1) * slower / self.posterior.time(home)

    def _settled(self) -> Choice:
        n = favourite(self.posterior, self.limit, self.now)
        return Choice(n, True, explained(self.posterior, n, self.limit), n)

    def _is_at(self, n: int) -> bool:
        level = self.posterior.evidence.level
        return level == n or (min(level, n) >= MANY and abs(level - n) <= 1)

    def _to_learn(self, n: int, why: str) -> Choice:
        return Choice(n, False, f"to learn: {why}", self.best)


def _unseen(posterior: Posterior, limit: int, first: int, now: int) -> Choice:
    """No sample yet, or none of the world as it is: what somebody claimed, or the first guess."""
    if not posterior.is_claimed:
        n = min(now or first, limit)
        return Choice(n, False, "nothing is known yet", n)
    best = favourite(posterior, limit)
    return Choice(best, False, f"as was claimed: {explained(posterior, best, limit)}", best)


def _range(saved: Range) -> str:
    return f"{_percent(saved.mean)} ({_percent(saved.low)} to {_percent(saved.high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
