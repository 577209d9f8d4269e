"""Killed agents resume where they were; cancelled agents leave nothing behind."""

from __future__ import annotations

import os
import signal

import pytest

from tests.agents.real import clis
from tests.agents.real.fleet import AgentProject
from tests.agents.real.moves import call, hang, result, say, shell
from tests.torture.fleet import wait_for

pytestmark = pytest.mark.agents
MAIN = ("claude", "codex", "gemini")
DONE = [
    call("complete_task", {"summary": "done"}),
    result({"status": "completed", "summary": "done"}),
]
BEGUN = 'echo "$$" >> begun.txt'
# A child in its own session that outlives its parents, and a command that keeps running.
ESCAPE = (
    "setsid sh -c 'echo $$ > escaped.pid; exec tail -f /dev/null' > /dev/null 2>&1 &"
    " tail -f /dev/null"
)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("agent", MAIN)
def test_a_killed_agent_resumes_its_session(project: AgentProject, agent: str, signum: int) -> None:
    """It is killed while it waits for the model, after its first command."""
    project.model.script("item-1", [shell(BEGUN), hang(times=1), *DONE])
    words = project.words(agent, "--permissions", "full", "--retries", "1")
    client = project.start("run", *words, items=["item-1"])
    wait_for(lambda: _hangs(project), "the second request", story=project.story)
    for pid in project.agents():
        os.kill(pid, signum)
    project.try_again_now()
    ended = project.ended(client, 600)
    assert ended.code == 0, ended.err + project.story()
    project.wait_until_left()
    _resumed(project)


def test_an_agent_whose_worker_dies_resumes_its_session(project: AgentProject) -> None:
    project.model.script("item-1", [shell(BEGUN), hang(times=1), *DONE])
    client = project.start(
        "run", *project.words("claude", "--permissions", "full"), items=["item-1"]
    )
    wait_for(lambda: _hangs(project), "the second request", story=project.story)
    for pid in project.workers():
        os.kill(pid, signal.SIGKILL)
    ended = project.ended(client, 600)
    assert ended.code == 0, ended.err + project.story()
    project.wait_until_left()
    _resumed(project)


def _hangs(project: AgentProject) -> bool:
    return any(asked.move.hang for asked in project.model.asked)


def _resumed(project: AgentProject) -> None:
    last, first = project.sessions()
    assert first.session
    assert last.resumes == first.session
    assert project.task("item-1").state == "done"
    begun = (project.folder / "begun.txt").read_text().split()
    assert len(begun) == 1, "it did its first command again"


@pytest.mark.parametrize("agent", clis.NAMES)
def test_nothing_survives_a_cancelled_agent(project: AgentProject, agent: str) -> None:
    project.model.script("item-1", [shell(ESCAPE), say("COMPLETED: done")])
    words = project.words(agent, "--permissions", "full")
    client = project.start("run", *words, items=["item-1"])
    escaped = project.folder / "escaped.pid"
    wait_for(
        lambda: escaped.exists() and bool(escaped.read_text().strip()),
        "the child",
        180,
        project.story,
    )
    pid = int(escaped.read_text())
    assert os.path.exists(f"/proc/{pid}")
    assert project.ended(project.start("cancel", project.task("item-1").id)).code == 0
    project.ended(client, 600)
    project.wait_until_left()
    assert not os.path.exists(f"/proc/{pid}")
    assert project.states() == {"cancelled": 1}, project.story()
