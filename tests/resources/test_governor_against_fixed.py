"""The governor against the best fixed number of workers, on a simulated host."""

from functools import cache

import pytest

from hypervisor.resources.admission import Footprint
from hypervisor.resources.governor import Governor, RunningAttempt
from hypervisor.resources.zones import Load

MB, GB = 1 << 20, 1 << 30
TICK = 500


class Fleet:
    """Tasks that grow to their peak and end after a while, on a host of a few gigabytes.

    Durations vary by up to a fifth.
    """

    LIMIT = 6 * GB
    PEAK = GB
    WORKER = 25 * MB
    OTHERS = 60 * MB

    def __init__(self, grow, last, tasks=20):
        self.grow, self.last, self.todo = grow, last, tasks
        self.started, self.pace = {}, {}
        self.draining = set()
        self.now = self.most = self.done = self.count = 0

    def read(self, workers):
        return Load(0.3, 0.2, self.used(), self.LIMIT, 0.0)

    def used(self):
        return self.OTHERS + sum(map(self.size, self.started))

    def size(self, name):
        grown = self.age(name) / self.grow
        return self.WORKER + int(self.PEAK * min(1.0, grown))

    def age(self, name):
        return (self.now - self.started[name]) * self.pace[name]

    def step(self):
        """A worker whose task has ended takes the next one, unless it drains."""
        for name in [name for name in self.started if self.age(name) >= self.last]:
            del self.started[name]
            self.done += 1
            if self.todo and name not in self.draining:
                self.start(name)
        self.most = max(self.most, self.used())
        self.now += 100

    def start(self, name=None):
        self.count += 1
        self.todo -= 1
        name = name or f"w{self.count}"
        self.started[name] = self.now
        self.pace[name] = 0.8 + 0.4 * (self.count * 0.618 % 1)

    def obey(self, decision):
        for name in decision.stop:
            del self.started[name]
            self.todo += 1
        self.draining |= set(sorted(self.started, key=self.age, reverse=True)[decision.target :])
        while self.todo and len(self.started) < decision.target:
            self.start()


@cache
def best_fixed(grow, last):
    """The time of the best fixed number of workers that stays within the memory."""
    runs = (fixed(workers, grow, last) for workers in range(3, 8))
    return min(took for took, most in runs if most <= Fleet.LIMIT)


def fixed(workers, grow, last):
    fleet = Fleet(grow, last)
    while fleet.todo or fleet.started:
        while fleet.todo and len(fleet.started) < workers:
            fleet.start()
        fleet.step()
    return fleet.now, fleet.most


def governed(limit, declared, grow, last):
    """The same under the governor; without a declared peak it is known when one has ended."""
    fleet = Fleet(grow, last)
    governor = Governor(fleet)
    while fleet.todo or fleet.started:
        if fleet.now % TICK == 0:
            peak = declared or (fleet.PEAK if fleet.done else None)
            running = [
                RunningAttempt(name, "medium", start, Footprint(peak, fleet.size(name)))
                for name, start in fleet.started.items()
            ]
            governor.tick(fleet.now, [], running)
            asked = fleet.todo + len(fleet.started)
            fleet.obey(governor.decide(fleet.now, asked, limit, running, peak))
        fleet.step()
    return fleet.now, fleet.most


KNOWN = pytest.mark.parametrize("declared", [None, GB], ids=["unknown", "declared"])
TIMES = [
    (300, 5000),
    (2500, 5000),
    (4000, 5000),
    (1000, 10_000),
    (8000, 10_000),
    (5000, 30_000),
    (15_000, 30_000),
    (30_000, 60_000),
    (150_000, 300_000),
]


def allowed(took, declared):
    """The time allowed, given the time of the right number of workers.

    With its peak declared every task starts at once: only the decision may come a tick late. An
    unknown peak is known when the first task has ended alone; with five at once, twenty tasks are
    four rounds, and that is a fifth.
    """
    return took + TICK if declared else took * 5 / 4


@KNOWN
@pytest.mark.parametrize("limit", [6, 20])
@pytest.mark.parametrize("grow, last", TIMES, ids=lambda ms: f"{ms / 1000:g}s")
def test_twenty_tasks_of_1_gb_on_6_gb(grow, last, limit, declared):
    took, most = governed(limit, declared, grow, last)
    assert most <= Fleet.LIMIT
    assert took <= allowed(best_fixed(grow, last), declared)


@KNOWN
@pytest.mark.parametrize("last", [5000, 10_000, 30_000, 60_000], ids=lambda ms: f"{ms / 1000:g}s")
def test_what_grows_until_it_ends_is_admitted_as_if_all_peaked_at_once(last, declared):
    """With luck, more could run at once, because their peaks do not coincide."""
    fit = (Fleet.LIMIT - Fleet.OTHERS) // (Fleet.PEAK + Fleet.WORKER)
    took, most = governed(20, declared, last, last)
    assert most <= Fleet.LIMIT
    assert took <= allowed(fixed(fit, last, last)[0], declared)
