"""Eight real agents drain a queue, pushed to them or pulled by them: all done, none twice,
and the stored figures are those of the model."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.agents.real.fleet import ITEM, AgentProject
from tests.agents.real.moves import Move, Turn, call, result, say

pytestmark = pytest.mark.agents
TASKS, AGENTS = 16, 8
MAIN = ("claude", "codex", "gemini")
SUMMARY = "looked at it"
# Micro-dollars per token read and written by claude's default model.
CLAUDE_PRICE = (4, 20)
PULLING = "Look at the item"


@pytest.mark.parametrize("agent", MAIN)
def test_pushed_tasks_are_done_once_each(project: AgentProject, agent: str) -> None:
    done = {"status": "completed", "summary": SUMMARY}
    project.model.script(ITEM, [call("complete_task", {"summary": SUMMARY}), result(done)])
    ended = project.work(agent, TASKS, "--workers", str(AGENTS), seconds=600)
    assert ended.code == 0, ended.err + project.story()
    project.wait_until_left()
    _all_done_once(project)
    # On a busy host an agent may lose its connection: its task is put back at no cost.
    # An agent without our tools reports its result in its last message.
    endings = ("settled", "completed")
    sessions = [session for session in project.sessions() if session.outcome in endings]
    assert len(sessions) == TASKS, [session.outcome for session in project.sessions()]
    asked = Counter(asked.key for asked in project.model.asked if asked.turn.replies == 0)
    assert set(asked) == set(project.items(TASKS))
    if len(sessions) == len(project.sessions()):  # one that lost its connection cannot report all
        _figures_are_the_models(project, agent)
    for session in sessions:
        assert session.session in _transcript(project, session.task, session.attempt)


@pytest.mark.parametrize("agent", MAIN)
def test_pulled_tasks_are_done_once_each(project: AgentProject, agent: str) -> None:
    project.model.script(PULLING, pulling)
    ended = project.work(agent, TASKS, "--workers", str(AGENTS), "--pull", "6", seconds=600)
    assert ended.code == 0, ended.err + project.story()
    project.wait_until_left()
    _all_done_once(project)
    completed = Counter(
        one.args["token"].split(".")[0]
        for asked in project.model.asked
        for one in asked.turn.calls[-1:]
        if one.name.endswith("complete_task")
    )
    assert set(completed.values()) == {1}, completed
    assert len(completed) == TASKS
    _figures_are_the_models(project, agent)
    for session in project.sessions():
        assert session.session in _transcript(project, session.id, 1)


def pulling(turn: Turn) -> Move:
    """Claims and completes tasks until none is left."""
    last = turn.calls[-1] if turn.calls else None
    if last is None or last.name.endswith("complete_task"):
        return call("claim_next_task", {"caller": "agent"})
    token = token_in(last.answer or "")
    if token:
        return call("complete_task", {"token": token, "summary": SUMMARY})
    return say("QUEUE EMPTY: all that was there is done")


def token_in(answer: str) -> str:
    found = re.search(r'"token\\*":\s*\\*"([a-z0-9.]+)', answer)
    return found[1] if found else ""


def _all_done_once(project: AgentProject) -> None:
    assert project.states() == {"done": TASKS}, project.story()
    attempts = project.attempts()
    del attempts["released"]  # on a busy host a worker may put back what it has not begun
    assert attempts == Counter(done=TASKS)


def _figures_are_the_models(project: AgentProject, agent: str) -> None:
    """Tokens of all sessions together, and claude's money, to the last one."""
    sessions, dealt = project.sessions(), project.model.dealt()
    assert all(session.session for session in sessions)
    assert len({session.session for session in sessions}) == len(sessions)
    assert sum(session.tokens.input for session in sessions) == dealt.input
    assert sum(session.tokens.output for session in sessions) == dealt.output
    if agent == "claude":
        price_in, price_out = CLAUDE_PRICE
        cost = dealt.input * price_in + dealt.output * price_out
        assert sum(session.cost_micros for session in sessions) == cost
        assert not any(session.estimated for session in sessions)


def _transcript(project: AgentProject, task: str, attempt: int) -> str:
    (path,) = (project.folder / ".hypervisor/outputs").rglob(f"{task}.{attempt}.log")
    return path.read_text()
