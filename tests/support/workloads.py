"""Workloads with a known best answer, in simulated time: no clock is read."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import exp, inf
from typing import NamedTuple

from hypervisor.learning.evidence import Evidence, add_attempt
from hypervisor.learning.policy import choose, favourite
from hypervisor.learning.posterior import Claim, posterior

LIMIT = 8
CORES = 2


class Law(NamedTuple):
    """The cost of n at once. Either all share, and each proceeds at 1 / ratio(n); or `served`
    are served at a time, in order of arrival, and the rest queue."""

    ratio: Callable[[int], float]
    served: int = 0
    cpu: float = 0.02  # seconds on a CPU, of a second of work

    def __call__(self, n: int) -> float:
        return self.ratio(n)


Policy = Callable[[Evidence], tuple[int, int]]  # how many now, and which number is thought best

WORLDS: dict[str, Law] = {
    "cpu": Law(lambda n: max(1.0, n / CORES), cpu=1.0),
    "sleep": Law(lambda n: 1.0),
    "lock": Law(float, served=1),
    "shared lock": Law(float),
    "quota": Law(lambda n: max(1.0, n / 3), served=3),
    "memory": Law(lambda n: 1 + 0.15 * n * (n - 1), cpu=0.1),
    "usl": Law(lambda n: 1 + 0.1 * (n - 1) + 0.01 * n * (n - 1), cpu=0.2),
    "half cpu": Law(lambda n: max(1.0, n / 4), cpu=0.5),
    "ten percent": Law(lambda n: max(1.0, 0.9 * n)),
}


class Run(NamedTuple):
    ends: list[float]  # when attempts ended
    evidence: Evidence
    workers: list[int]  # how many were wanted when each attempt ended …
    best: list[int]  # … and which number was thought best

    @property
    def seconds(self) -> float:
        return self.ends[-1]


class _Attempt:
    def __init__(self, work: float, began: float, among: int) -> None:
        self.work, self.began, self.shared, self.full = work, began, 0.0, work
        self.among = among


def simulated(
    world: Law,
    tasks: int,
    policy: Policy,
    seed: int,
    spread: float = 0.2,
    later: Law | None = None,
    evidence: Evidence | None = None,
) -> Run:
    """Run this many tasks, as many at once as the policy says; halfway the law changes to
    `later`."""
    rnd, now, begun = random.Random(seed), 0.0, 0
    works = [rnd.lognormvariate(0, spread) for _ in range(tasks)]
    run, running = Run([], evidence or Evidence(), [], []), list[_Attempt]()
    want, best = policy(run.evidence)
    while len(run.ends) < tasks:
        law = later if later is not None and len(run.ends) >= tasks // 2 else world
        while begun < tasks and len(running) < want:
            running.append(_Attempt(works[begun], now, len(running) + 1))
            begun += 1
        n = len(running)
        active = running[: law.served] if law.served else running
        pace = 1.0 if law.served else 1 / law(n)
        step = min(each.work for each in active) / pace
        now += step
        for each in active:
            each.work -= step * pace
        for each in running:
            each.shared += step / n
        for each in [each for each in active if each.work < 1e-9]:
            running.remove(each)
            took = max(now - each.began, 1e-9)
            busy = each.full * law.cpu / CORES
            known = add_attempt(run.evidence, took / each.shared, took, busy, each.among)
            if known is not run.evidence:
                want, best = policy(known)
            run = run._replace(evidence=known)
            run.ends.append(now)
            run.workers.append(want)
            run.best.append(best)
    return run


def adaptive(limit: int = LIMIT, claimed: Claim | None = None) -> Policy:
    """As the supervisor does it."""
    now = 0

    def policy(evidence: Evidence) -> tuple[int, int]:
        nonlocal now
        belief = posterior(evidence, claimed)
        now = choose(belief, limit, now=now).workers
        return now, favourite(belief, limit) if evidence.levels else now

    return policy


def fixed(workers: int) -> Policy:
    return lambda _: (workers, workers)


def best_fixed(
    world: Law, tasks: int, seed: int, later: Law | None = None, since: int = 0
) -> float:
    """The time of the best fixed number of workers, found by trying all; `since` so many had
    ended."""
    return min(
        run.seconds - (run.ends[since - 1] if since else 0.0)
        for run in (
            simulated(world, tasks, fixed(n), seed, later=later) for n in range(1, LIMIT + 1)
        )
    )


def any_law(rnd: random.Random) -> Callable[[int], float]:
    """A random law, not only one on the learner's grid."""
    wait = rnd.choice((0.0, min(rnd.expovariate(4), 1.0)))
    cost = rnd.choice((0.0, min(rnd.expovariate(15), 0.4)))
    served = rnd.choice((inf, inf, 1.0, exp(rnd.uniform(0, 2.5)), exp(rnd.uniform(0, 2.5))))
    return lambda n: max(1 + wait * (n - 1) + cost * n * (n - 1), n / served)


def efficiency(world: Law, workers: int) -> float:
    """The throughput of this many workers, as a share of the best."""
    return (workers / world(workers)) / max(n / world(n) for n in range(1, LIMIT + 1))
