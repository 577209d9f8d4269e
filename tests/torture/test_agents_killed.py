"""Agents and their workers are killed; sessions are resumed, and no process is left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from hypervisor.resources.process_table import read_process
from tests.torture.agents import Agents
from tests.torture.fleet import kill, wait_for

GROWN = 4  # the agent, its shell command, and two that have left its session


def test_a_killed_worker_takes_its_agent_along_and_the_session_continues(project):
    agents = Agents(project)
    agents.start("claude", acts=["killed"])
    wait_for(lambda: agents.notes("waiting"), "the agent at work", story=project.story)
    (first,) = agents.notes("waiting")
    _, agent, task, session = first
    known = lambda: [run.session for run in agents.sessions()]  # noqa: E731
    wait_for(lambda: known() == [session], "word of its session", story=project.story)
    (worker,) = project.workers()
    kill(_process(worker))
    wait_for(lambda: _is_gone(int(agent)), "the end of the agent", story=project.story)
    wait_for(lambda: project.states() == {"done": 1}, "the end of the task", story=project.story)
    agents.wait_until_reported()
    work = project.folder / f"work-{task}"
    assert work.read_text() == "first half\nsecond half\n"
    before, after = agents.sessions()
    assert (before.outcome, after.outcome) == ("crashed", "completed")
    assert after.resumes == before.session == after.session
    assert after.cost_micros == 100_000, "only its own cost, not that of the whole session"
    assert [each.outcome for each in agents.attempts(task)] == ["crashed", "done"]
    project.wait_until_left()


@pytest.mark.parametrize("kind", ["codex", "gemini"])
def test_a_killed_agent_continues_where_it_was(project, kind):
    agents = Agents(project)
    agents.start(kind, "--retries", "1", acts=["killed"])
    wait_for(lambda: agents.notes("waiting"), "the agent at work", story=project.story)
    os.kill(int(agents.notes("waiting")[0][1]), signal.SIGKILL)
    project.try_again_now()
    wait_for(lambda: project.states() == {"done": 1}, "the end of the task", story=project.story)
    agents.wait_until_reported()
    before, after = agents.sessions()
    assert (before.outcome, after.outcome) == ("crashed", "completed")
    assert after.resumes == before.session == after.session
    asked = len(agents.notes("requests"))
    total = sum(run.tokens.output for run in agents.sessions())
    told = asked if kind == "codex" else 1  # only codex reports a killed one, when it resumes
    assert total == 20 * told


def test_a_session_that_is_lost_is_started_over(project):
    agents = Agents(project)
    ended = agents.run("claude", "--retries", "1", acts=["lost"])
    assert ended.code == 0, ended
    outcomes = [run.outcome for run in agents.sessions()]
    assert outcomes == ["crashed", "lost_session", "completed"]
    (task,) = agents.tasks().values()
    assert [each.outcome for each in agents.attempts(task.id)] == ["failed", "released", "done"]


@pytest.mark.parametrize("kind", ["claude", "codex", "gemini"])
def test_after_a_cancel_nothing_survives(project, kind):
    agents = Agents(project)
    agents.start(kind, acts=["escape"])
    roster = agents.provider / "roster"
    wait_for(lambda: len(_roster(roster)) == GROWN, "its children", story=project.story)
    pids = _roster(roster)
    assert not any(_is_gone(pid) for pid in pids)
    with project.open() as hv:
        (task,) = hv.list_tasks()
        hv.cancel(task.id, reason="enough")
    wait_for(lambda: all(map(_is_gone, pids)), "the end of all of them", story=project.story)
    wait_for(lambda: project.states() == {"cancelled": 1}, "the cancel", story=project.story)
    agents.wait_until_reported()
    assert [run.outcome for run in agents.sessions()] == ["stopped"]
    wait_for(lambda: not agents.homes(), "the end of its home")
    project.wait_until_left()


def test_a_stop_that_the_agent_ends_with_0_is_not_taken_for_success(project):
    agents = Agents(project)
    agents.start("claude", acts=["polite"])
    wait_for(lambda: agents.notes("waiting"), "the agent at work", story=project.story)
    task = agents.notes("waiting")[0][2]
    with project.open() as hv:
        hv.kill(task, reason="too long", retry=True)
        wait_for(lambda: len(agents.notes("waiting")) == 2, "the next one", story=project.story)
        hv.kill(task, reason="too long")
    wait_for(lambda: project.states() == {"failed": 1}, "its end", story=project.story)
    agents.wait_until_reported()
    assert [run.outcome for run in agents.sessions()] == ["stopped", "stopped"]
    first, second = agents.sessions()
    assert second.resumes == first.session


def test_an_agent_keeps_its_limits(project):
    agents = Agents(project)
    agents.run("claude", "--timeout", "3s", acts=["polite"])
    (task,) = agents.tasks().values()
    assert task.state == "failed" and "time limit" in (task.reason or "")
    project.wait_until_left()


def test_one_that_never_stops_printing_is_stopped(project):
    agents = Agents(project)
    agents.run("claude", "--max-output", "20M", acts=["drown"])
    (task,) = agents.tasks().values()
    assert task.state == "failed" and "output limit" in (task.reason or "")


def test_a_flood_is_kept_within_bounds_and_understood(project):
    agents = Agents(project)
    agents.run("claude", acts=["flood"])
    (task,) = agents.tasks().values()
    assert task.state == "done", project.story()
    (attempt,) = agents.attempts(task.id)
    assert attempt.output_bytes > 20_000_000


def _roster(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _process(pid: int):
    found = read_process(pid)
    assert found is not None
    return found


def _is_gone(pid: int) -> bool:
    found = read_process(pid)
    return found is None or not found.lives
