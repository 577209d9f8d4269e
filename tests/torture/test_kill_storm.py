"""Workers are killed at random the whole time: everything still ends, each task exactly once."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

import hypervisor
from tests.torture.lookout import check_invariants, query

CREW = 6
KILLS = 120
EVERY = 0.03  # seconds between kills, on average
AT_MOST = 900.0


@pytest.mark.parametrize("k", [1, 4])
def test_kill_storm(store, fork_server, k):
    dice = random.Random(20261115 + k)
    tasks = 4_000
    with hypervisor.open(store.where, relaxed=True) as hv:
        hv.add(_tangle(tasks, dice), batch="storm")

        storm = Storm(fork_server, store.where, k, dice)
        storm.rage(hv)
        poisoned = hv.list_tasks(states=("failed",), limit=1_000)
        storm.calm(hv)
        states = check_invariants(hv)
        reports = hv.verify()

    assert states == {"done": tasks}
    assert len(storm.killed) >= 100
    assert all(report.problem is None for report in reports) and reports[0].receipts > 0
    crashes = _account(store.where, storm.killed, k, {task.id for task in poisoned})
    print(
        f"{store.kind} k={k}: {len(storm.killed)} kills, {crashes} reruns, "
        f"{len(poisoned)} poisoned, {storm.looks} looks"
    )


def _tangle(count, dice):
    """Tasks of which some wait for earlier ones and some share keys."""
    tasks = []
    for n in range(count):
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
    def __init__(self, fork_server, where, k, dice):
        self._fork_server = fork_server
        self._where = where
        self._k = k
        self._dice = dice
        self._alive = []
        self.killed = set()
        self.looks = 0
        self._until = time.monotonic() + AT_MOST

    def rage(self, hv):
        """Kill and replace until enough have died, checking the ledger at the same time."""
        looked = 0.0
        while len(self.killed) < KILLS:
            assert time.monotonic() < self._until
            while len(self._alive) < CREW:
                self._alive.append(self._hire())
            time.sleep(self._dice.random() * 2 * EVERY)  # kills come at random times
            victim = self._alive.pop(self._dice.randrange(CREW))
            if victim.pid in self._fork_server.ended():
                assert self._fork_server.ended()[victim.pid] == 0, "a worker failed by itself"
                assert hv.stats().remaining == 0, "the storm was too short: add tasks"
                break
            victim.kill()
            self.killed.add(victim.pid)
            if time.monotonic() - looked > 1:
                check_invariants(hv)
                self.looks += 1
                looked = time.monotonic()

    def calm(self, hv):
        """No more kills: failed tasks are retried, and everything ends.

        The last victims are noticed only after the last kill, so a task may fail even
        now; until it is retried, its dependents keep the workers busy.
        """
        while hv.stats().states["done"] < hv.stats().total or self._alive:
            assert time.monotonic() < self._until, hv.stats().states
            for task in hv.list_tasks(states=("failed",), limit=1_000):
                hv.retry(task.id, reason="the storm is over")
            ended = self._fork_server.ended()
            assert all(ended.get(worker.pid, 0) == 0 for worker in self._alive)
            self._alive = [worker for worker in self._alive if worker.pid not in ended]
            if not self._alive and hv.stats().remaining:
                self._alive = [self._hire()]
            time.sleep(0.02)

    def _hire(self):
        name = f"worker{len(self.killed) + len(self._alive)}"
        seed = self._dice.getrandbits(32)
        return self._fork_server.start("survivor", self._where, name, self._k, seed)


def _account(where, killed, k, poisoned):
    """Every rerun is caused by a kill, every poisoned task by three. Returns the reruns."""
    attempts, completions, poisonings = query(
        where,
        "SELECT a.task, a.number, a.outcome, w.pid FROM attempts a "
        "JOIN workers w ON w.id = a.worker ORDER BY a.task, a.number",
        "SELECT task, count(*) FROM events WHERE kind = 'complete' GROUP BY task",
        "SELECT task, count(*) FROM events WHERE kind = 'poison' GROUP BY task",
    )
    assert {count for _, count in completions} == {1}
    assert {outcome for _, _, outcome, _ in attempts} <= {"done", "crashed"}
    crashed = [(task, pid) for task, _, outcome, pid in attempts if outcome == "crashed"]
    by_worker = Counter(pid for _, pid in crashed)
    assert set(by_worker) <= killed, "a task was taken from a worker that nobody killed"
    assert max(by_worker.values(), default=0) <= k, "a worker lost more than it could hold"
    reruns = sum(number > 1 for _, number, _, _ in attempts)
    assert reruns == len(crashed) <= len(killed) * k
    times = Counter(task for task, _ in crashed)
    assert {task for task, _ in poisonings} == poisoned | {task for task, _ in poisonings}
    for task, count in poisonings:
        assert times[task] >= 3 * count, f"{task} was given up after {times[task]} crashes"
    survived = [task for task in times if times[task] >= 3 and task not in dict(poisonings)]
    assert not survived, "the crash limit was not kept"
    return reruns
