"""Simulated runs that behave like real processes where these differ from

`workloads.simulated`. A task keeps the law it was started under, also after a change; a process
takes a while to start, during which it holds no lock; the learner is called periodically, not at
every end; a new worker takes time to start, and a surplus one exits when its attempt ends.
"""

from __future__ import annotations

import random
from math import inf

from hypervisor.learning.evidence import Evidence, add_attempt
from tests.support.workloads import CORES, Law, Policy, fixed

STARTING = 0.12  # of an attempt alone, as with 0.3 s of work: a process …
LOOKING = 0.33  # … the time between looks of the learner …
COMING = 0.2  # … and a worker
LITTLE = 1e-9


class _Attempt:
    def __init__(self, law: Law, work: float, began: float, among: int) -> None:
        self.law, self.work, self.busy = law, work, work * law.cpu / CORES
        self.starting, self.began, self.among, self.shared = STARTING, began, among, 0.0

    @property
    def left(self) -> float:
        return self.starting or self.work

    def advance(self, step: float) -> bool:
        """Whether it has come to work with that."""
        if not self.starting:
            self.work -= step
            return False
        self.starting = self.starting - step if self.starting - step > LITTLE else 0.0
        return not self.starting


class _Run:
    def __init__(self, laws: list[Law], policy: Policy, seed: int, spread: float) -> None:
        rnd = random.Random(seed)
        self.todo = [(law, rnd.lognormvariate(0, spread)) for law in laws]
        self.look_at, self.policy = rnd.random() * LOOKING, policy
        self.running: list[_Attempt] = []
        self.ended: list[tuple[float, float, float, int]] = []
        self.coming: list[float] = []
        self.now, self.known = 0.0, Evidence()
        self.want = self.workers = policy(self.known)[0]

    def seconds(self) -> float:
        while self.todo or self.running:
            while self.todo and len(self.running) < self.workers:
                law, work = self.todo.pop(0)
                self.running.append(_Attempt(law, work, self.now, len(self.running) + 1))
            self._step()
            if self.coming and self.coming[0] <= self.now + LITTLE:
                self.coming.pop(0)
                self.workers += self.workers < self.want
            if self.look_at <= self.now + LITTLE:
                self._look()
        return self.now

    def _step(self) -> None:
        paces = {each: self._pace(each) for each in self.running}
        step = min(
            self.look_at - self.now,
            *self.coming[:1] and [self.coming[0] - self.now],
            *(each.left / pace if pace else inf for each, pace in paces.items()),
            inf,
        )
        self.now += step
        for each, pace in paces.items():
            each.shared += step / len(paces)
            if each.advance(step * pace):  # behind those who wait already
                self.running.remove(each)
                self.running.append(each)
        for each in [each for each in self.running if each.left < LITTLE]:
            self._end(each)

    def _pace(self, attempt: _Attempt) -> float:
        if attempt.starting:
            return 1.0
        law = attempt.law
        there = [each for each in self.running if each.law is law and not each.starting]
        if law.served:
            return float(attempt in there[: law.served])
        return 1 / law(len(there))

    def _end(self, attempt: _Attempt) -> None:
        self.running.remove(attempt)
        took = self.now - attempt.began
        self.ended.append((took / attempt.shared, took, attempt.busy, attempt.among))
        self.workers -= self.workers > self.want

    def _look(self) -> None:
        self.look_at = self.now + LOOKING
        for each in self.ended:
            self.known = add_attempt(self.known, *each)
        if self.ended:
            self.want = self.policy(self.known)[0]
        self.ended = []
        missing = self.want - self.workers - len(self.coming)
        self.coming += [self.now + COMING] * missing


def lost(laws: list[Law], policy: Policy, seed: int, spread: float = 0.05) -> float:
    """What the policy loses to the best fixed number, as a share; a law for each task."""
    best = min(_Run(laws, fixed(n), seed, spread).seconds() for n in (1, 2, 3, 4, 6, 8))
    return _Run(laws, policy, seed, spread).seconds() / best - 1
