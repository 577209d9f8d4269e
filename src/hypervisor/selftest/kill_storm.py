"""Real workers on one store are killed at random the whole time; everything still ends once."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import closing

import hypervisor
from hypervisor.selftest import history, sql
from hypervisor.selftest.crew import Child, ForkServer
from hypervisor.selftest.invariants import check_invariants
from hypervisor.selftest.part import Figures, Setting, Violation, ensure

CREW = 6
KILLS = 40  # at least, however short the time is
EVERY = 0.03  # seconds between kills, on average
SUPPLY = 300  # ready tasks at least, so that there is always something to lose
GRACE = 180.0  # seconds for the survivors to finish


def run(setting: Setting, per_claim: int = 2) -> Figures:
    dice = setting.dice()
    where = setting.new_store()
    folder = setting.folder / "storm"
    folder.mkdir()
    with closing(ForkServer()) as crew, hypervisor.open(where, relaxed=True) as hv:
        hv.add(tangle(0, SUPPLY, dice), batch="storm")
        storm = Storm(crew, where, str(folder), per_claim, setting)
        storm.rage(hv)
        storm.calm(hv)
        states, tasks = check_invariants(hv), hv.stats().total
        broken = [report.problem for report in hv.verify() if report.problem]
        ensure(not broken, f"a chain of receipts is broken: {broken[:1]}")
        ensure(states == {"done": tasks}, f"not everything was done: {dict(states)}")
        reruns = account(hv, set(storm.killed), per_claim)
        checked = history.check(hv, history.read(folder), storm.killed)
    return {"kills": len(storm.killed), "tasks": tasks, "reruns": reruns, **checked}


def tangle(first: int, count: int, dice: random.Random) -> list[hypervisor.NewTask]:
    """Tasks of which some wait for earlier ones and some share keys."""
    tasks = []
    for n in range(first, first + count):
        after = {f"t{dice.randrange(n)}" for _ in range(2)} if n and dice.random() < 0.3 else ()
        exclusive = {f"file{dice.randrange(20)}"} if dice.random() < 0.15 else set()
        if exclusive and dice.random() < 0.3:
            exclusive.add(f"file{dice.randrange(20)}")
        tasks.append(
            hypervisor.NewTask(
                f"task {n}",
                key=f"t{n}",
                after=tuple(after),
                exclusive=tuple(exclusive),
                type=dice.choice(("code", "test")),
                priority=dice.choice(("high", "medium")),
            )
        )
    return tasks


class Storm:
    def __init__(
        self, crew: ForkServer, where: str, folder: str, per_claim: int, setting: Setting
    ) -> None:
        self._crew, self._where, self._folder = crew, where, folder
        self._per_claim, self._setting = per_claim, setting
        self._dice = random.Random(setting.seed + 1)
        self._alive: list[Child] = []
        self._hired = 0
        self.killed: dict[int, float] = {}  # when

    def rage(self, hv: hypervisor.Hypervisor) -> None:
        """Kill and replace until the time is over, checking the store meanwhile."""
        checked = 0.0
        while len(self.killed) < KILLS or not self._setting.is_over:
            while len(self._alive) < CREW:
                self._alive.append(self._hire())
            time.sleep(self._dice.random() * 2 * EVERY)  # kills come at random times
            victim = self._alive.pop(self._dice.randrange(CREW))
            ended = self._crew.ended()
            if victim.pid in ended:
                ensure(ended[victim.pid] == 0, "a worker failed")
                continue
            self.killed[victim.pid] = time.monotonic()
            victim.kill()
            if time.monotonic() - checked > 1:
                check_invariants(hv)
                checked = time.monotonic()
                if hv.stats().remaining < SUPPLY:
                    more = tangle(hv.stats().total, SUPPLY, self._dice)
                    hv.add(more, batch="storm")
                self._setting.tell(f"{len(self.killed)} kills")

    def calm(self, hv: hypervisor.Hypervisor) -> None:
        """No more kills: failed tasks are retried, and everything ends.

        The last victims are noticed only after the last kill, so a task may fail even
        now; until it is retried, its dependents keep the workers busy.
        """
        deadline = time.monotonic() + GRACE
        while hv.stats().states["done"] < hv.stats().total or self._alive:
            if time.monotonic() > deadline:
                raise Violation(f"tasks are stuck: {hv.stats().states}")
            for task in hv.list_tasks(states=("failed",), limit=1_000):
                hv.retry(task.id, reason="the storm is over")
            ended = self._crew.ended()
            failed = any(ended.get(worker.pid, 0) for worker in self._alive)
            ensure(not failed, "a worker failed")
            self._alive = [worker for worker in self._alive if worker.pid not in ended]
            if not self._alive and hv.stats().remaining:
                self._alive = [self._hire()]
            time.sleep(0.02)

    def _hire(self) -> Child:
        self._hired += 1
        seed = self._dice.getrandbits(32)
        return self._crew.start(
            "storm_worker",
            self._where,
            f"worker{self._hired}",
            self._per_claim,
            seed,
            self._folder,
            bug=self._setting.bug,
        )


def account(hv: hypervisor.Hypervisor, killed: set[int], per_claim: int) -> int:
    """Every rerun is caused by a kill, every poisoned task by three. Returns the reruns."""
    attempts, completions, poisonings = hv.store.read(
        sql.rows, sql.ATTEMPTS, sql.COMPLETIONS, sql.POISONINGS
    )
    twice = [task for task, count in completions if count > 1]
    ensure(not twice, f"completed more than once: {twice[:3]}")
    odd = {outcome for _, _, _, outcome, _ in attempts} - {"done", "crashed"}
    ensure(not odd, f"attempts ended as {odd}")
    crashed = [(task, pid) for task, _, _, outcome, pid in attempts if outcome == "crashed"]
    by_worker = Counter(pid for _, pid in crashed)
    ensure(set(by_worker) <= killed, "a task was taken from a worker that was not killed")
    most = max(by_worker.values(), default=0)
    ensure(most <= per_claim, f"a worker lost {most} tasks, more than it could hold")
    reruns: int = sum(number > 1 for _, number, _, _, _ in attempts)
    ensure(reruns == len(crashed), "an attempt was repeated without a crash")
    times = Counter(task for task, _ in crashed)
    for task, count in poisonings:
        ensure(times[task] >= 3 * count, f"{task} failed after {times[task]} crashes")
    spared = [task for task in times if times[task] >= 3 and task not in dict(poisonings)]
    ensure(not spared, f"crashed three times and not failed: {spared[:3]}")
    return reruns
