"""Agents that speak ACP, run for real with the profiles of the documentation."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.agents.real.fleet import ITEM, AgentProject
from tests.agents.real.moves import Move, Turn, call, hang, say, shell
from tests.agents.real.test_gateway import Sampler
from tests.torture.fleet import wait_for

pytestmark = pytest.mark.agents
PAGE = Path(__file__).parents[3] / "docs/how-to/acp-agents.md"
(PROFILES,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
NAMES = tuple(re.findall(r"\[agents\.(.+)\]", PROFILES))
WRITE = {
    "gemini-acp": ("write_file", "file_path", "content"),
    "qwen-acp": ("write_file", "file_path", "content"),
    "opencode-acp": ("write", "filePath", "content"),
    "copilot-acp": ("create", "path", "file_text"),
    "claude-acp": ("Write", "file_path", "content"),
}
# OpenCode reports its last call only; the bridge of claude not the one for a title.
REPORTED_CALLS = {"opencode-acp": 1, "claude-acp": 2}
# They end their turn when something is refused, and say nothing more.
END_WHEN_REFUSED = ("qwen-acp", "opencode-acp", "copilot-acp")
# Qwen makes further calls of its own beside the turn, which this script cannot tell apart.
CONTINUE = tuple(name for name in NAMES if name != "qwen-acp")
# That calls go through the gateway is seen with all; two of them are enough for a budget.
LIMITED = [
    pytest.param(name, marks=() if name in ("codex-acp", "gemini-acp") else pytest.mark.long)
    for name in NAMES
]
ANSWER = "use port 8080"


@pytest.fixture
def acp(project: AgentProject) -> AgentProject:
    path = project.folder / ".hypervisor/config.toml"
    path.write_text(path.read_text() + PROFILES)
    return project


def write(agent: str, path: Path) -> Move:
    """A file written by the agent's own tool; codex has only its shell."""
    if agent not in WRITE:
        return shell(f"echo made > {path}")
    tool, name, content = WRITE[agent]
    return call(tool, {name: str(path), content: "made\n"})


@pytest.mark.gateway
@pytest.mark.parametrize("agent", CONTINUE)
def test_it_writes_a_file_asks_and_continues_with_the_answer(acp: AgentProject, agent: str) -> None:
    """The file with permission of the batch, the question as text; then over MCP to the end. All
    calls go through the gateway, those of the second attempt with a new token."""
    made = acp.folder / "made.txt"

    def moves(turn: Turn) -> Move:
        if not turn.calls:
            return write(agent, made)
        if ANSWER not in turn.text:
            return say("BLOCKED: no port / config is empty / Which port should it use?")
        completed = any("complete_task" in f"{each.name} {each.args}" for each in turn.calls)
        return say("COMPLETED") if completed else call("complete_task", {"summary": "over MCP"})

    acp.model.script("item-1", moves)
    acp.run(*acp.words(agent), items=["item-1"], seconds=200)
    task = acp.task("item-1")
    assert (task.state, made.exists()) == ("blocked", True), acp.story()
    (first,) = acp.sessions()
    assert first.session and first.denied == ()
    assert first.tokens[:2] >= (2000, 40), first
    assert first.tokens[:2] == (2000, 40) or agent == "claude-acp", "it makes up a title, too"

    assert acp.ended(acp.start("answer", task.id, ANSWER)).code == 0
    wait_for(lambda: acp.task("item-1").state != "active", "a start", 30, acp.story)
    wait_for(lambda: acp.task("item-1").state != "in_progress", "the end", 200, acp.story)
    acp.wait_until_left()
    assert acp.task("item-1").state == "done", acp.story()
    assert len(acp.sessions()) == 2, (acp.story(), acp.sessions())
    second, _ = acp.sessions()
    assert (second.resumes, second.session) == (first.session, first.session)
    assert acp.task("item-1").result == {"summary": "over MCP"}
    assert ANSWER in acp.model.asked[-1].turn.text
    assert acp.model.asked[-1].turn.replies >= 2, "the conversation before is part of the request"


@pytest.mark.parametrize("agent", WRITE)
def test_what_it_is_refused_becomes_a_question_and_yes_allows_it(
    acp: AgentProject, agent: str
) -> None:
    """In read-only, it asks for its first change; a person allows exactly that. Codex asks
    nothing: its sandbox refuses."""
    made, other = acp.folder / "made.txt", acp.folder / "other.txt"

    def moves(turn: Turn) -> Move:
        if "A person allowed" not in turn.text:
            return say("BLOCKED: refused / - / -") if turn.calls else write(agent, made)
        later = [each for each in turn.calls if "made.txt" in str(each.args)][1:]
        if not later:
            return write(agent, made)
        tried = any("other.txt" in str(each.args) for each in turn.calls)
        tried = tried or agent in END_WHEN_REFUSED
        return say("COMPLETED: made it") if tried else write(agent, other)

    acp.model.script("item-1", moves)
    words = acp.words(agent, "--permissions", "read-only", "--workspace", "project")
    acp.run(*words, items=["item-1"], seconds=200)
    task = acp.task("item-1")
    assert (task.state, made.exists()) == ("blocked", False), acp.story()
    (first,) = acp.sessions()
    calls = REPORTED_CALLS.get(agent, len(acp.model.asked))
    assert first.tokens[:2] == (1000 * calls, 20 * calls), first
    assert "may it use" in task.unblock and task.unblock.endswith("?"), task
    assert acp.ended(acp.start("answer", task.id, "yes, do it")).code == 0
    wait_for(lambda: acp.task("item-1").state != "active", "a start", 30, acp.story)
    wait_for(lambda: acp.task("item-1").state != "in_progress", "the end", 200, acp.story)
    acp.wait_until_left()
    assert acp.task("item-1").state == "done", acp.story()
    assert made.exists() and not other.exists(), acp.story()


@pytest.mark.parametrize("agent", NAMES)
def test_it_is_cancelled_and_nothing_is_left(acp: AgentProject, agent: str) -> None:
    escape = "setsid sh -c 'echo $$ > escaped.pid; exec tail -f /dev/null' > /dev/null 2>&1 &"
    acp.model.script("item-1", [shell(f"{escape} sleep 1"), hang()])
    words = acp.words(agent, "--permissions", "full", "--workspace", "project")
    client = acp.start("run", *words, items=["item-1"])
    escaped = acp.folder / "escaped.pid"
    wait_for(lambda: _hangs(acp) and escaped.exists(), "the child", 200, acp.story)
    pid = int(escaped.read_text())
    assert acp.ended(acp.start("cancel", acp.task("item-1").id)).code == 0
    acp.ended(client, 300)
    acp.wait_until_left()
    assert not os.path.exists(f"/proc/{pid}")
    assert acp.states() == {"cancelled": 1}, acp.story()
    (session,) = acp.sessions()
    assert (session.outcome, bool(session.session)) == ("stopped", True)


@pytest.mark.gateway
@pytest.mark.parametrize("agent", LIMITED)
def test_a_budget_ends_the_task_at_the_next_call(acp: AgentProject, agent: str) -> None:
    """A task that would never end; it is not given the key."""

    def moves(turn: Turn) -> Move:
        return shell(f"env; echo {len(turn.calls)}", tokens=(1000, 200, 0))

    acp.model.script(ITEM, moves)
    sampler = Sampler(acp)
    sampler.start()
    acp.work(agent, 1, "--permissions", "full", "--task-tokens", "3500")
    sampler.over.set()
    sampler.join(30)
    acp.wait_until_left()
    (task,) = acp.tasks()
    assert "the token limit of the task is used up: 3,60" in task.reason, acp.story()
    assert len(acp.model.asked) == 3
    assert sampler.attempts and not sampler.places


def _hangs(project: AgentProject) -> Any:
    return any(asked.move.hang for asked in project.model.asked)
