"""The clients that can use Hypervisor over MCP: where each keeps its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import join
from typing import Any, Literal

from hypervisor.core.records import NamedTuple

SERVER = "hypervisor"
Scope = Literal["user", "project"]
Shape = Literal["plain", "claude", "copilot", "opencode"]
USER: Scope = "user"
PROJECT: Scope = "project"


class Client(NamedTuple):
    """Paths are relative: to the home (or the folder that a variable names), to the project.
    Without a path for projects, both are the same."""

    name: str
    title: str
    config: str
    skills: str
    project_config: str = ""
    project_skills: str = ""
    kind: Literal["json", "toml"] = "json"
    path: tuple[str, ...] = ("mcpServers", SERVER)
    home_variable: str = ""  # names the folder that `~/NAME` stands for
    home_default: str = ""
    shape: Shape = "plain"  # how an entry is written


class Target(NamedTuple):
    """The paths for one client, and what is written into its configuration."""

    client: Client
    scope: Scope
    config: str
    skill: str
    entry: dict[str, Any]


CLAUDE = Client(
    "claude",
    "Claude Code",
    ".claude.json",
    ".claude/skills",
    project_config=".mcp.json",
    home_variable="CLAUDE_CONFIG_DIR",
    home_default=".claude",
    shape="claude",
)
CODEX = Client(
    "codex",
    "Codex",
    ".codex/config.toml",
    ".codex/skills",
    project_skills=".agents/skills",
    kind="toml",
    path=("mcp_servers", SERVER),
    home_variable="CODEX_HOME",
    home_default=".codex",
)
GEMINI = Client("gemini", "Gemini CLI", ".gemini/settings.json", ".gemini/skills")
OPENCODE = Client(
    "opencode",
    "OpenCode",
    ".config/opencode/opencode.json",
    ".config/opencode/skills",
    "opencode.json",
    ".opencode/skills",
    path=("mcp", SERVER),
    home_variable="XDG_CONFIG_HOME",
    home_default=".config",
    shape="opencode",
)
QWEN = Client("qwen", "Qwen Code", ".qwen/settings.json", ".qwen/skills")
COPILOT = Client(
    "copilot",
    "GitHub Copilot CLI",
    ".copilot/mcp-config.json",
    ".copilot/skills",
    ".mcp.json",
    ".github/skills",
    shape="copilot",
)
CLIENTS = {client.name: client for client in (CLAUDE, CODEX, GEMINI, OPENCODE, QWEN, COPILOT)}


class Place(NamedTuple):
    """Where we are: the user's home, the project's folder, the environment."""

    home: str
    project: str
    env: Mapping[str, str]

    @property
    def state(self) -> str:
        base = self.env.get("XDG_STATE_HOME") or join(self.home, ".local", "state")
        return join(base, "hypervisor", "clients")


def target_for(client: Client, scope: Scope, place: Place, command: tuple[str, ...]) -> Target:
    """`command` starts `hv`; what serves MCP is added to it."""
    # Copilot reads the file of a project that Claude Code reads: one entry must serve both.
    shape = "claude" if scope == PROJECT and client.shape == "copilot" else client.shape
    if scope == PROJECT:
        config = join(place.project, client.project_config or client.config)
        skills = join(place.project, client.project_skills or client.skills)
    else:
        config, skills = (_at_home(client, path, place) for path in (client.config, client.skills))
    entry = entry_of(shape, [*command, "mcp"])
    return Target(client, scope, config, join(skills, SERVER, "SKILL.md"), entry)


def entry_of(shape: Shape, words: list[str]) -> dict[str, Any]:
    if shape == "opencode":
        return {"type": "local", "command": words, "enabled": True}
    plain = {"command": words[0], "args": words[1:]}
    if shape == "copilot":
        return {"type": "local", **plain, "tools": ["*"]}
    if shape == "claude":  # else it hides the tools behind a search until the model looks for them
        return {"type": "stdio", **plain, "alwaysLoad": True}
    return plain


def _at_home(client: Client, path: str, place: Place) -> str:
    folder = place.env.get(client.home_variable, "") if client.home_variable else ""
    if not folder:
        return join(place.home, path)
    return join(folder, path.removeprefix(client.home_default + "/"))
