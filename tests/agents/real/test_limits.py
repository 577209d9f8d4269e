"""A provider that refuses for a while, and a budget that runs out: all agents obey."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing

import pytest

import hypervisor
from hypervisor.queue.sql import agent_sessions
from tests.agents.real.fleet import ITEM, AgentProject
from tests.agents.real.moves import Move, Turn, call, refuse, result
from tests.torture.fleet import wait_for

pytestmark = pytest.mark.agents
RESET = 20.0
FLEETS = {"claude": (6, 20), "codex": (8, 20), "gemini": (4, 4)}  # and with --long
DONE = [
    call("complete_task", {"summary": "done"}),
    result({"status": "completed", "summary": "done"}),
]


class Limited:
    """A model that refuses all requests once this many conversations are waiting, until its
    reset."""

    def __init__(self, agents: int) -> None:
        self.agents, self.waiting = agents, set[str]()
        self.since: float | None = None
        self.changed = threading.Condition()

    def __call__(self, turn: Turn) -> Move:
        with self.changed:
            self.waiting.add(turn.text)
            if len(self.waiting) >= self.agents and self.since is None:
                self.since = time.time()
                self.changed.notify_all()
            self.changed.wait_for(lambda: self.since is not None, 400)
            assert self.since is not None, "the fleet never came together"
            left = self.since + RESET - time.time()
        if left > 0:
            return refuse(429, retry_after=int(left) + 1, error="Rate limit reached")
        return DONE[min(turn.replies, 1)]


@pytest.mark.parametrize("agent", FLEETS)
def test_one_limit_stops_the_fleet_until_it_is_over(
    project: AgentProject, agent: str, long: bool
) -> None:
    fleet = FLEETS[agent][long]
    limited = Limited(fleet)
    project.model.script(ITEM, limited)
    ended = project.work(agent, fleet, "--workers", str(fleet), seconds=600)
    assert ended.code == 0, ended.err + project.story()
    project.wait_until_left()
    assert project.states() == {"done": fleet}
    assert all(task.failures == 0 for task in project.tasks())
    assert set(project.attempts()) <= {"done", "released"}
    assert limited.since is not None
    refused = [asked for asked in project.model.asked if asked.move.status == 429]
    by_agent = Counter(asked.key for asked in refused)
    assert max(by_agent.values()) <= 2, by_agent  # the one that hit the limit, and one more
    said = [event.data["message"] for event in project.events("cooldown")]
    assert [text for text in said if "is rate-limited until" in text] == said[:1], said
    print(f"{len(refused)} refused, {said}")


def test_a_budget_is_kept_except_for_running_tasks(project: AgentProject) -> None:
    """0.50 for tasks of 0.10 and four agents: at most 0.90; the rest waits, with the reason."""
    costly = [
        call("complete_task", {"summary": "done"}, tokens=(20_000, 1_000, 0)),
        result({"status": "completed", "summary": "done"}, tokens=(0, 0, 0)),
    ]
    project.model.script(ITEM, costly)
    words = project.words("claude", "--workers", "4", "--budget", "0.50", "--detach")
    started = project.ended(project.start("run", *words, items=project.items(12)))
    assert started.code == 0, started.err
    paused = project.pause(600)
    wait_for(lambda: not project.agents(), "the end of the agents", story=project.story)
    project.wait_until_left()
    with closing(hypervisor.open(project.store)) as hv:
        spent = hv.store.read(agent_sessions.spent)
    assert 500_000 <= spent.cost_micros <= 900_000
    if not spent.estimated:  # on a busy host one may be stopped before it reports its cost
        assert spent.cost_micros == 100_000 * project.states()["done"]
    assert set(project.states()) == {"done", "active"}
    assert "0.50" in paused.reason, paused
    assert project.events("budget"), "no warning came before the end"
