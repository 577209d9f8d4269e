"""What an agent relies on is gone: the tools of Hypervisor, or the session to resume."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.agents.real.fleet import AgentProject
from tests.agents.real.moves import call, hang, result, say, shell
from tests.torture.fleet import wait_for

pytestmark = pytest.mark.agents
MAIN = ("claude", "codex", "gemini")
DONE = [call("complete_task", {"summary": "done"}), result({"status": "completed", "summary": "d"})]
# Where each keeps its sessions, below its home.
SESSIONS = {"claude": ".claude/projects", "codex": ".codex/sessions", "gemini": ".gemini/tmp"}


@pytest.mark.parametrize("agent", MAIN)
def test_an_agent_without_hypervisors_tools_does_not_succeed(
    project: AgentProject, agent: str
) -> None:
    """claude and gemini continue without them and exit with 0."""
    _break_mcp(project, agent)
    project.model.script("item-1", [say("I have looked at it.")])
    ended = project.run(*project.words(agent), items=["item-1"], seconds=600)
    assert ended.code != 0
    project.wait_until_left()
    (session,) = project.sessions()
    assert session.outcome == "mcp_dead", project.story()
    assert project.states() == {"failed": 1}


def _break_mcp(project: AgentProject, agent: str) -> None:
    """As a user's configuration could: the server's command is one that ends at once."""
    dead = {"mcpServers": {"hypervisor": {"command": "/bin/false"}}}
    file = project.home / "dead.json"
    file.write_text(json.dumps(dead))
    if agent == "claude":
        _configure(project, "claude", f'mcp = ["--mcp-config", "{file}", "--strict-mcp-config"]')
    elif agent == "codex":
        words = ["-c", 'mcp_servers.hypervisor.command="/bin/false"']
        _configure(project, "codex", f"mcp = {json.dumps(words)}")
    else:
        # Its settings override all others: they can only be broken before it starts.
        before = project.home / "before"
        before.write_text(
            '#!/bin/sh\nsed -i \'s#"command": "[^"]*"#"command": "/bin/false"#\' '
            '"$HOME/.gemini/settings.json"\nexec gemini "$@"\n'
        )
        before.chmod(0o755)
        _configure(project, "gemini", f'program = "{before}"')


def _configure(project: AgentProject, agent: str, line: str) -> None:
    file = project.folder / ".hypervisor/config.toml"
    file.write_text(f"{file.read_text()}\n[agents.{agent}]\n{line}\n")


@pytest.mark.parametrize("agent", MAIN)
def test_a_missing_session_starts_over(project: AgentProject, agent: str) -> None:
    project.model.script("item-1", [shell("echo begun"), hang(times=1), *DONE])
    words = project.words(agent, "--permissions", "full", "--retries", "1", "--name", "lost")
    client = project.start("run", *words, items=["item-1"])
    wait_for(lambda: any(a.move.hang for a in project.model.asked), "the hang", story=project.story)
    assert project.ended(project.start("pause", "lost")).code == 0
    for pid in project.agents():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: _free(project), "the end of the attempt", story=project.story)
    _forget(project, agent)
    assert project.ended(project.start("resume", "lost")).code == 0
    project.try_again_now()
    ended = project.ended(client, 600)
    assert ended.code == 0, ended.err + project.story()
    project.wait_until_left()
    outcomes = [session.outcome for session in reversed(project.sessions())]
    assert outcomes[1:] == ["lost_session", "settled"], project.story()
    assert project.task("item-1").failures <= 1


def _free(project: AgentProject) -> bool:
    (session, *_) = project.sessions()
    return session.outcome is not None


def _forget(project: AgentProject, agent: str) -> None:
    kept = [Path(path) for path in (project.folder / ".hypervisor").rglob(SESSIONS[agent])]
    assert kept, "no session was kept at all"
    for path in kept:
        shutil.rmtree(path)
