"""Agents that claim by themselves over MCP: every task once, and nothing is left of the claims."""

from __future__ import annotations

import pytest

from hypervisor.resources.process_table import read_process
from tests.torture.agents import Agents
from tests.torture.fleet import kill, wait_for

TASKS = 12


@pytest.mark.parametrize("kind", ["claude", "codex", "gemini"])
def test_agents_drain_the_queue_by_themselves(project, kind):
    agents = Agents(project)
    prompt = "Do act-pull with each."
    agents.start(kind, "--pull", "5", "--workers", "2", "--prompt", prompt, acts=["x"] * TASKS)
    wait_for(lambda: project.states() == {"done": TASKS}, "all tasks", story=project.story)
    agents.wait_until_reported()
    done = [words[2] for words in agents.notes("done")]
    assert len(done) == len(set(done)) == TASKS, "one was done twice"
    runs = agents.sessions()
    assert len(runs) >= 3, "nobody may do more than five in one run"
    assert {run.outcome for run in runs} == {"completed"}
    assert all(run.task == "" and run.session for run in runs)
    for run in runs:
        path = project.folder / ".hypervisor" / "outputs"
        (output,) = path.rglob(f"{run.id}.1.log")
        assert run.session.encode() in output.read_bytes()
    project.wait_until_left()
    assert agents.homes() == []


def test_what_a_killed_keeper_held_is_back_at_once(project):
    agents = Agents(project)
    prompt = "Do act-pull-holds."
    agents.start("claude", "--pull", "5", "--workers", "1", "--prompt", prompt, acts=["x"])
    wait_for(lambda: agents.notes("claimed"), "the claim", story=project.story)
    pid = int(agents.notes("claimed")[0][1])
    (worker,) = project.workers()
    found = read_process(worker)
    assert found is not None
    kill(found)
    wait_for(lambda: _is_gone(pid), "the end of the agent", story=project.story)
    wait_for(lambda: len(agents.notes("claimed")) == 2, "the next claim", story=project.story)


def test_a_claim_of_an_agent_can_be_called_off(project):
    agents = Agents(project)
    prompt = "Do act-pull-holds."
    agents.start("claude", "--pull", "5", "--workers", "1", "--prompt", prompt, acts=["x"])
    wait_for(lambda: agents.notes("claimed"), "the claim", story=project.story)
    with project.open() as hv:
        (task,) = hv.list_tasks()
        hv.cancel(task.id, reason="enough")
    wait_for(lambda: project.states() == {"cancelled": 1}, "the cancel", story=project.story)
    wait_for(lambda: _is_gone(int(agents.notes("claimed")[0][1])), "the agent's end")
    project.wait_until_left()


def test_a_claim_that_was_left_behind_counts_as_failed(project):
    agents = Agents(project)
    prompt = "Do act-pull-leaves."
    agents.start("claude", "--pull", "5", "--workers", "1", "--prompt", prompt, acts=["x"])
    wait_for(lambda: project.states() == {"failed": 1}, "the failure", story=project.story)
    (task,) = agents.tasks().values()
    assert "without ending its claim" in (task.reason or "")


def test_agents_that_claim_nothing_are_not_started_forever(project):
    agents = Agents(project)
    prompt = "Do act-nothing."
    agents.start("claude", "--pull", "5", "--workers", "1", "--prompt", prompt, acts=["x"])
    wait_for(lambda: project.events("pause"), "the pause", story=project.story)
    assert "claimed nothing" in project.events("pause")[0].data["reason"]
    assert len(agents.sessions()) == 3
    wait_for(lambda: not project.workers(), "the end of the workers", story=project.story)


def _is_gone(pid: int) -> bool:
    found = read_process(pid)
    return found is None or not found.lives
