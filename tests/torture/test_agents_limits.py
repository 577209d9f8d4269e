"""Rate limits and budgets hold for all agents, which continue by themselves."""

from __future__ import annotations

import time

import pytest

from hypervisor.queue.sql import agent_sessions, queries
from tests.torture.agents import Agents
from tests.torture.fleet import wait_for

AGENTS = 20


def test_one_limit_makes_all_agents_of_the_account_rest(project):
    """Twenty are at work when the provider says 429: none of them asks more than once."""
    agents = Agents(project)
    acts = [f"together-{n}" for n in range(AGENTS)]
    agents.start("claude", "--workers", str(AGENTS), acts=acts)
    wait_for(lambda: len(agents.notes("together")) == AGENTS, "all at work", story=project.story)
    until = time.time() + 8
    (agents.provider / "limit").write_text(str(until))
    (agents.provider / "go").touch()
    wait_for(lambda: project.states() == {"done": AGENTS}, "all tasks", story=project.story)
    agents.wait_until_reported()
    answers = [words for words in agents.notes("requests") if words[3] == "429"]
    asked = [words[1] for words in answers]
    assert len(asked) == len(set(asked)) <= AGENTS, "an agent asked again"
    assert all(int(words[0]) >= until * 1000 for words in _later(agents)), "somebody did not wait"
    for task in agents.tasks().values():
        outcomes = [each.outcome for each in agents.attempts(task.id)]
        assert set(outcomes) <= {"released", "done"} and outcomes[-1] == "done"
        assert (task.failures, task.crashes) == (0, 0), "an attempt was counted"
    runs = agents.sessions()
    resumed = [run for run in runs if run.resumes]
    assert len(resumed) == sum(run.outcome == "quota" for run in runs) > 0
    assert project.events("cooldown")
    project.wait_until_left()


def _later(agents):
    """The requests made after the last agent had hit the limit."""
    requests = agents.notes("requests")
    last = max(int(words[0]) for words in requests if words[3] == "429")
    return [words for words in requests if int(words[0]) > last]


@pytest.mark.parametrize("kind", ["claude", "codex", "gemini"])
def test_an_agent_that_would_try_again_forever_is_stopped_at_once(project, kind):
    """An answer that arrives while it is being stopped does not count as a crash."""
    agents = Agents(project)
    agents.start(kind, acts=["retries-429"])
    wait_for(lambda: project.events("cooldown"), "the brake", story=project.story)
    wait_for(lambda: project.states() == {"active": 1}, "the release", story=project.story)
    agents.wait_until_reported()
    assert len(agents.notes("requests")) <= 10, "it went on asking"
    assert agents.notes("answered"), "it was stopped before it could answer"
    assert [run.outcome for run in agents.sessions()] == ["quota"]
    (task,) = agents.tasks().values()
    assert (task.failures, task.crashes) == (0, 0)
    wait_for(lambda: not project.workers(), "the worker's end", story=project.story)


def test_another_account_works_on(project):
    agents = Agents(project)
    agents.start("claude", "--fallback", "fake-codex", acts=["retries-429"])
    wait_for(lambda: project.events("cooldown"), "the brake", story=project.story)
    ended = project.run(
        "--agent", "fake-gemini", "--name", "other", "--permissions", "full", items=["act-ok"]
    )
    assert ended.code == 0, ended


@pytest.mark.parametrize("kind", ["claude", "codex", "gemini"])
def test_a_refused_key_pauses_the_batch_and_says_what_to_do(project, kind):
    agents = Agents(project)
    agents.start(kind, acts=["auth", "auth"])
    wait_for(lambda: project.events("pause"), "the pause", story=project.story)
    (event,) = project.events("pause")[:1]
    assert "auth" in event.data["reason"] and "Log in" in event.data["reason"]
    wait_for(lambda: not project.workers(), "the worker's end", story=project.story)
    assert {task.state for task in agents.tasks().values()} == {"active"}
    assert all(task.failures == 0 for task in agents.tasks().values())


def test_a_budget_is_kept_but_for_what_was_running(project):
    agents = Agents(project)
    acts = ["ok"] * 30
    agents.start("claude", "--workers", "4", "--budget", "1.00", acts=acts)
    wait_for(lambda: project.events("pause"), "the pause", story=project.story)
    wait_for(lambda: not project.workers(), "the end of the workers", story=project.story)
    with project.open() as hv:
        spent = hv.store.read(agent_sessions.spent, hv.store.read(queries.batch, "b").id)
    assert 1_000_000 <= spent.cost_micros <= 1_400_000
    states = project.states()
    assert states["done"] == spent.cost_micros // 100_000
    assert states["active"] == 30 - states["done"], "the rest waits"
    reason = project.events("pause")[0].data["reason"]
    assert "budget" in reason and "1.00" in reason
    assert project.events("budget"), "no warning came first"
    agents.run("claude", "--workers", "4", "--budget", "10.00", acts=acts)
    assert project.states() == {"done": 30}


def test_an_agent_over_the_budget_of_its_task_is_stopped(project):
    agents = Agents(project)
    agents.run("claude", "--task-tokens", "2500", acts=["slow-300"])
    (task,) = agents.tasks().values()
    assert task.state == "failed" and "tokens" in (task.reason or "")
    assert len(agents.notes("requests")) < 200
