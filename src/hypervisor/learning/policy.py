"""How many workers a type of task gets under the strategy `adaptive`.

The cost of a number of workers is the time per attempt, times a toll: running in parallel must
save at least 15 % of the time, and twice as many workers must do 4 % more. The policy settles on
the number with the lowest cost. Until it is confident it tries other numbers where that may pay:
it weighs the possible gain in the next attempts against the possible loss during the trial. Steps
are small, so that no trial can cost much, and a trial lasts until it has a result. Later it checks
again whether more workers pay by now, often if that costs nothing, as with a lock.
"""

from __future__ import annotations

from hypervisor.core.records import NamedTuple
from hypervisor.learning.evidence import MANY, is_in_doubt
from hypervisor.learning.posterior import Posterior, Range

MIN_SAVING = 0.15  # of the time; for less, one at a time is as good
TOLL_POWER = 0.06  # the power of the number of workers in the toll
HORIZON = 30  # attempts in which a trial has to pay off
LOOK_COST = 2.0  # attempts that a trial takes, per worker
SURPLUS = 1.0  # attempts that a trial must gain
BEYOND = 0.5  # the share of a trial's value that comes from numbers beyond the one tried
MIN_OBSERVED = 2  # samples until a level counts as observed
TIE = 1.03  # a number that costs up to this factor more is as good
HALF = 0.5  # a level known half as well as the best is known well enough
LOW_ENOUGH = 0.15  # of the best value below: then the lowest number, which shows more
MAX_STEP_DOWN = 4  # the smallest number tried is this many times smaller than any observed
FEW = 2.0
RECHECK_AFTER = 2  # attempts until it checks whether more workers pay by now, …
RECHECK_SHARE = 1 / 15  # … or this share of all attempts under these conditions, …
MAX_RECHECK_COST = 0.05  # … and later if the check may cost more than this share of the time
MAX_RECHECK_FACTOR = 4  # a check tries at most this many times as many
EARLY = 20  # samples
MIN_WEIGHT = 0.9  # of a level, in samples
SLOWED_DOWN = 1.4
CONFIDENT = 0.85
WELL_KNOWN = 2.5
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class Choice(NamedTuple):
    """The chosen number of workers, and why; `settled` unless it is chosen to learn something.
    `best` is the best number so far."""

    workers: int
    settled: bool
    why: str
    best: int = 1


def choose(posterior: Posterior, limit: int, first: int = 0, now: int = 0) -> Choice:
    """How many workers the next attempts get, at most `limit`; `first` (half of them) while
    nothing is known. The current number `now` stays until it has been observed long enough."""
    if limit <= 1:
        return Choice(1, True, "the limit is one")
    if not posterior.levels:
        return _unseen(posterior, limit, first or (limit + 1) // 2, now)
    return _Chooser(posterior, limit, now).choice()


def favourite(posterior: Posterior, limit: int, now: int = 0) -> int:
    """The number with the lowest cost; the current one, `now`, if it is as good."""
    steps = levels(limit)
    best = min(steps, key=lambda n: posterior.time(n) * toll(n))
    if min(now, best) <= 1 or now not in steps:
        return best
    return (
        now if posterior.time(now) * toll(now) <= TIE * posterior.time(best) * toll(best) else best
    )


def toll(n: int) -> float:
    return 1.0 if n == 1 else float(n**TOLL_POWER) / (1 - MIN_SAVING)


def levels(limit: int) -> list[int]:
    """The numbers of workers to consider, up to a limit."""
    return [n for n in STEPS if n < limit] + [limit]


def explained(posterior: Posterior, chosen: int, limit: int) -> str:
    """Why this number, in a sentence with its figures."""
    steps = levels(limit)
    if chosen > 1:
        text = f"{chosen} at once save {_range(posterior.benefit(chosen))} of the time"
        more = [n for n in steps if n > chosen]
        return f"{text}; more workers would add little" if more else text
    top = min(steps, key=lambda n: (posterior.time(n), n))
    saved = posterior.benefit(top if top > 1 else min(2, limit))
    if saved.mean <= 0.02:
        return f"one at a time: running in parallel saves nothing ({_range(saved)})"
    return f"one at a time: {top} at once would save only {_range(saved)} of the time"


class _Chooser:
    """One choice, rule by rule: the first that applies decides."""

    def __init__(self, posterior: Posterior, limit: int, now: int) -> None:
        self.posterior, self.limit, self.now = posterior, limit, now
        self.steps = levels(limit)
        self.best = favourite(posterior, limit)
        self.costs = {n: [toll(n) * time for time in posterior.times(n)] for n in self.steps}
        seen = [n for n, level in posterior.levels.items() if level.weight > HALF]
        most, fewest = max(seen, default=1), min(seen, default=1)
        low, high = fewest / MAX_STEP_DOWN, max(most + 2, 1.5 * most)
        self.near = [n for n in self.steps if low <= n <= high]

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
        if self._is_at(self.now) and evidence.run >= MIN_OBSERVED and not is_odd:
            return None
        why = "recent results differ from earlier ones" if is_odd else "not observed long enough"
        return self._to_learn(self.now, f"{self.now} at once: {why}")

    def _second(self) -> Choice | None:
        """One number alone is not enough: a second one shows the difference, and if there is none,
        nothing is lost."""
        evidence = self.posterior.evidence
        seen = [n for n in self.posterior.levels if self.posterior.weight(n) >= MIN_WEIGHT]
        more = self.near[-1] if self.near else 0
        if len(seen) != 1 or evidence.samples - evidence.changed > EARLY or seen[0] >= more:
            return None
        return self._to_learn(more, f"only {seen[0]} at a time has been tried so far")

    def _look(self) -> Choice | None:
        """Try the seemingly best number first; then where it pays most, more workers first."""
        if self.best in self.near and self.posterior.weight(self.best) < MIN_WEIGHT:
            if favourite(self.posterior, self.limit, self.now) == self.best:
                return None  # it is chosen anyway
            return self._to_learn(self.best, f"{self.best} look best but have hardly been tried")
        known = max(HALF * self.posterior.weight(self.best), FEW)
        other = [n for n in self.near if n != self.best and self.posterior.weight(n) <= known]
        worth = {n: self._worth(n) for n in other}
        above = [n for n in other if n > self.best and worth[n] > 0]
        n = max(above or other, key=lambda n: worth[n], default=0)
        if not n or worth[n] <= SURPLUS * self.posterior.mean(self.costs[self.best]):
            return None
        if n < self.best:
            n = min(m for m in other if worth[m] >= LOW_ENOUGH * worth[n])
        chance = self._chance(n, self.best)
        better = "do much more than" if n > self.best else "do nearly as much as"
        return self._to_learn(n, f"{n} workers may {better} {self.best}, {_percent(chance)} likely")

    def _chance(self, n: int, other: int) -> float:
        """The probability that n costs less than `other`."""
        both = zip(self.costs[n], self.costs[other], strict=True)
        return self.posterior.mean(float(here < there) for here, there in both)

    def _worth(self, n: int) -> float:
        """The possible gain of a trial of n in the next attempts, minus its possible cost."""
        best, there = self.costs[self.best], self.costs[n]
        behind = [m for m in self.steps if (m <= n if n < self.best else m >= n)]
        far = map(min, *(self.costs[m] for m in behind)) if len(behind) > 1 else iter(there)
        gain = self.posterior.mean(
            (1 - BEYOND) * max(b - t, 0.0) + BEYOND * max(b - f, 0.0)
            for b, t, f in zip(best, there, far, strict=True)
        )
        loss = self.posterior.mean(max(t - b, 0.0) for b, t in zip(best, there, strict=True))
        return HORIZON * gain - LOOK_COST * (n + 1) * loss

    def _explore_few(self) -> Choice | None:
        """Many slow each other down, and the effect of few is only inferred from that."""
        few = self.posterior.weight(1) + self.posterior.weight(2)
        if self.best <= 2 or few >= MIN_WEIGHT or self.posterior.weight(self.best) < WELL_KNOWN:
            return None
        if self.posterior.chance(lambda p: p.ratio(self.best) > SLOWED_DOWN) <= CONFIDENT:
            return None
        n = next((step for step in self.near if step >= 2), self.best)
        why = f"{self.best} slow each other down, and fewer have hardly been tried"
        return self._to_learn(n, why) if n < self.best else None

    def _explore_next(self) -> Choice | None:
        """The best is more than one step from the numbers observed, and not certain."""
        if not self.near or self.best <= self.near[-1]:
            return None
        if self._chance(self.best, self.near[-1]) > CONFIDENT:
            return None
        return self._to_learn(self.near[-1], f"moving toward {self.best} step by step")

    def _again(self) -> Choice | None:
        """Conditions may have changed: after some time, check whether more workers pay now. With
        as many as the check is worth: four show best that a lock is gone, at no cost."""
        home = favourite(self.posterior, self.limit, self.now)
        evidence = self.posterior.evidence
        lasted = evidence.samples - evidence.changed
        if not self._is_at(home) or evidence.run < max(RECHECK_AFTER, RECHECK_SHARE * lasted):
            return None
        above = [n for n in self.near if home < n <= MAX_RECHECK_FACTOR * home]
        cheap = [n for n in above if self._price(n, home) <= MAX_RECHECK_COST * evidence.run]
        if not cheap:
            return None
        return self._to_learn(cheap[-1], f"to see whether {cheap[-1]} now do more than {home}")

    def _price(self, n: int, home: int) -> float:
        """The possible cost of a trial of n, in attempts at the usual number."""
        here, there = self.posterior.times(home), self.posterior.times(n)
        slower = self.posterior.mean(max(t - h, 0.0) for h, t in zip(here, there, strict=True))
        return LOOK_COST * (n + 1) * slower / self.posterior.time(home)

    def _settled(self) -> Choice:
        n = favourite(self.posterior, self.limit, self.now)
        return Choice(n, True, explained(self.posterior, n, self.limit), n)

    def _is_at(self, n: int) -> bool:
        level = self.posterior.evidence.level
        return level == n or (min(level, n) >= MANY and abs(level - n) <= 1)

    def _to_learn(self, n: int, why: str) -> Choice:
        return Choice(n, False, f"a trial ({why})", self.best)


def _unseen(posterior: Posterior, limit: int, first: int, now: int) -> Choice:
    """No sample yet, or none since conditions changed: use the user's estimate, or the first
    guess."""
    if not posterior.is_claimed:
        n = min(now or first, limit)
        return Choice(n, False, "nothing known yet", n)
    best = favourite(posterior, limit)
    return Choice(best, False, f"by your estimate: {explained(posterior, best, limit)}", best)


def _range(saved: Range) -> str:
    return f"{_percent(saved.mean)} ({_percent(saved.low)} to {_percent(saved.high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
