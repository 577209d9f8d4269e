"""Work whose truth is known, in simulated time: nothing here looks at a clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from hypervisor.domain.adapting import choose
from hypervisor.domain.scaling import Evidence, believed, followed

Ratio = Callable[[int], float]
Policy = Callable[[Evidence], int]

LIMIT = 8
WORLDS: dict[str, Ratio] = {
    "cpu": lambda n: max(1.0, n / 2),
    "sleep": lambda n: 1.0,
    "lock": float,
    "quota": lambda n: max(1.0, n / 3),
    "memory": lambda n: 1 + 0.15 * n * (n - 1),
    "usl": lambda n: 1 + 0.1 * (n - 1) + 0.01 * n * (n - 1),
    "ten percent": lambda n: max(1.0, 0.9 * n),
}


class Run(NamedTuple):
    seconds: float
    evidence: Evidence
    workers: list[int]  # how many were wanted when each attempt ended


class _Attempt:
    def __init__(self, work: float, began: float) -> None:
        self.work, self.began, self.shared = work, began, 0.0


def simulated(
    world: Ratio, tasks: int, policy: Policy, seed: int, spread: float = 0.2,
    later: Ratio | None = None, evidence: Evidence | None = None,
) -> Run:  # fmt: skip
    """So many tasks one after the other, as many at once as the policy says; halfway the world
    becomes `later`. Each of n that run gets on at 1 / world(n)."""
    rnd, now, left, ended = random.Random(seed), 0.0, tasks, 0
    known, wanted = evidence or Evidence(), []
    running: list[_Attempt] = []
    while ended < tasks:
        law = later if later is not None and ended >= tasks // 2 else world
        want = policy(known)
        while left and len(running) < want:
            running.append(_Attempt(rnd.lognormvariate(0, spread), now))
            left -= 1
        n, pace = len(running), 1 / law(len(running))
        step = min(each.work for each in running) / pace
        now += step
        for each in running:
            each.work -= step * pace
            each.shared += step / n
        for each in [each for each in running if each.work < 1e-9]:
            running.remove(each)
            ended += 1
            took = max(now - each.began, 1e-9)
            known = followed(known, took / each.shared, took)
            wanted.append(want)
    return Run(now, known, wanted)


def adaptive(limit: int = LIMIT) -> Policy:
    """As the supervisor does it: the number there is stays unless another is better."""
    now = 0

    def policy(evidence: Evidence) -> int:
        nonlocal now
        now = choose(believed(evidence), limit, now=now).workers
        return now

    return policy


def fixed(workers: int) -> Policy:
    return lambda _: workers


def best_fixed(world: Ratio, tasks: int, seed: int, later: Ratio | None = None) -> float:
    """The time of the best fixed number of workers, found by trying all."""
    return min(
        simulated(world, tasks, fixed(n), seed, later=later).seconds for n in range(1, LIMIT + 1)
    )


def efficiency(world: Ratio, workers: int) -> float:
    """What so many do, as a share of what the best number does."""
    return (workers / world(workers)) / max(n / world(n) for n in range(1, LIMIT + 1))
