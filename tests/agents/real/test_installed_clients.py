"""The real clients read what `hv install` writes, and no longer do after `hv uninstall`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.real import clis
from tests.agents.real.model_server import ModelServer

pytestmark = pytest.mark.agents
HV = (sys.executable, "-I", "-c", "from hypervisor.app import main; main()")
SKILLS = {
    "gemini": ("skills", "list"),
    "copilot": ("skill", "list"),
    "opencode": ("debug", "skill"),
}
CONNECTED = {"claude": "✔ Connected", "qwen": "- Connected", "opencode": "connected"}
AGENTS = pytest.mark.parametrize("agent", clis.NAMES)


class ClaimRegistry:
    """An empty home and an empty project."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", folder / "project"
        for each in (self.home, self.project, folder / "tmp"):
            each.mkdir()
        self.env = {
            "HOME": str(self.home),
            "TMPDIR": str(folder / "tmp"),
            "LANG": "C.UTF-8",
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": str(folder / "tmp"),
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "COPILOT_AUTO_UPDATE": "false",
        }

    def hv(self, *words: str) -> None:
        subprocess.run([*HV, *words], env=self.env, cwd=self.project, check=True, timeout=300)

    def ask(self, agent: str, *words: str) -> str:
        done = subprocess.run(
            [*clis.program(agent), *words],
            env=self.env,
            cwd=self.project,
            timeout=300,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return done.stdout.decode("utf-8", "replace")


@pytest.fixture
def desk(tmp_path):
    return ClaimRegistry(tmp_path)


@AGENTS
def test_lists_the_server_while_it_is_installed(desk, agent):
    assert "hypervisor" not in desk.ask(agent, "mcp", "list")
    desk.hv("install", agent, "--yes")
    listed = desk.ask(agent, "mcp", "list")
    assert "hypervisor" in listed
    assert CONNECTED.get(agent, "") in listed
    desk.hv("uninstall", agent, "--yes")
    assert "hypervisor" not in desk.ask(agent, "mcp", "list")


@AGENTS
def test_lists_the_server_of_a_project(desk, agent):
    (desk.project / ".git").mkdir()
    trust(desk, agent)
    desk.hv("install", agent, "--yes", "--project")
    assert "hypervisor" in desk.ask(agent, "mcp", "list")
    desk.hv("uninstall", agent, "--yes", "--project")
    assert "hypervisor" not in desk.ask(agent, "mcp", "list")


@pytest.mark.parametrize("agent", SKILLS)
def test_finds_the_skill(desk, agent):
    desk.hv("install", agent, "--yes")
    assert "Run many tasks in parallel" in desk.ask(agent, *SKILLS[agent])


def test_claude_sees_the_tools_in_its_first_turn(desk):
    """It does not search for them first."""
    desk.hv("install", "claude", "--yes")
    with ModelServer(keep_bodies=True) as model:
        desk.env |= {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": clis.KEY}
        desk.ask("claude", "-p", "Say hello")
    bodies = [asked["body"] for asked in model.bodies]
    offered = [{tool["name"] for tool in body.get("tools", ())} for body in bodies]
    assert any("mcp__hypervisor__create_task" in tools for tools in offered), offered


def trust(desk: ClaimRegistry, agent: str) -> None:
    """Two of them read a project only if its user trusts it."""
    said = {
        "codex": (".codex/config.toml", f'[projects."{desk.project}"]\ntrust_level = "trusted"\n'),
        "copilot": (".copilot/config.json", f'{{"trustedFolders": ["{desk.project}"]}}'),
    }
    if agent in said:
        name, text = said[agent]
        path = desk.home / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
