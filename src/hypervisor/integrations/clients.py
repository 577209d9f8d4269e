"""The clients that can use Hypervisor over MCP: where each keeps its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import join
from typing import Any, NamedTuple

SERVER = "hypervisor"
USER, PROJECT = "user", "project"


class Client(NamedTuple):
    """Paths are relative: to the home (or the folder that a variable names), to the project."""

    name: str
    title: str
    config: str
    project_config: str
    skills: str
    project_skills: str
    kind: str = "json"
    path: tuple[str, ...] = ("mcpServers", SERVER)
    home_variable: str = ""  # names the folder that `~/NAME` stands for
    home_default: str = ""
    shape: str = "plain"  # how an entry is written


class Target(NamedTuple):
    """Where things go for one client, and what is written into its configuration."""

    client: Client
    scope: str
    config: str
    skill: str
    entry: dict[str, Any]


CLIENTS = {
    client.name: client
    for client in (
        Client(
            "claude",
            "Claude Code",
            ".claude.json",
            ".mcp.json",
            ".claude/skills",
            ".claude/skills",
            home_variable="CLAUDE_CONFIG_DIR",
            home_default=".claude",
            shape="claude",
        ),
        Client(
            "codex",
            "Codex",
            ".codex/config.toml",
            ".codex/config.toml",
            ".codex/skills",
            ".agents/skills",
            "toml",
            ("mcp_servers", SERVER),
            "CODEX_HOME",
            ".codex",
        ),
        Client(
            "gemini",
            "Gemini CLI",
            ".gemini/settings.json",
            ".gemini/settings.json",
            ".gemini/skills",
            ".gemini/skills",
        ),
        Client(
            "opencode",
            "OpenCode",
            ".config/opencode/opencode.json",
            "opencode.json",
            ".config/opencode/skills",
            ".opencode/skills",
            path=("mcp", SERVER),
            home_variable="XDG_CONFIG_HOME",
            home_default=".config",
            shape="opencode",
        ),
        Client(
            "qwen",
            "Qwen Code",
            ".qwen/settings.json",
            ".qwen/settings.json",
            ".qwen/skills",
            ".qwen/skills",
        ),
        Client(
            "copilot",
            "GitHub Copilot CLI",
            ".copilot/mcp-config.json",
            ".mcp.json",
            ".copilot/skills",
            ".github/skills",
            shape="copilot",
        ),
    )
}


def target(
    client: Client,
    scope: str,
    home: str,
    project: str,
    env: Mapping[str, str],
    command: tuple[str, ...],
) -> Target:
    """`command` starts `hv`; what serves MCP is added to it."""
    words = [*command, "mcp"]
    # Copilot reads the file of a project that Claude Code reads: one entry must serve both.
    shape = "claude" if scope == PROJECT and client.shape == "copilot" else client.shape
    entry = entry_of(shape, words)
    if scope == PROJECT:
        config, skills = join(project, client.project_config), join(project, client.project_skills)
    else:
        config, skills = (
            _at_home(client, path, home, env) for path in (client.config, client.skills)
        )
    return Target(client, scope, config, join(skills, SERVER, "SKILL.md"), entry)


def entry_of(shape: str, words: list[str]) -> dict[str, Any]:
    if shape == "opencode":
        return {"type": "local", "command": words, "enabled": True}
    plain = {"command": words[0], "args": words[1:]}
    if shape == "copilot":
        return {"type": "local", **plain, "tools": ["*"]}
    if shape == "claude":  # else it hides the tools behind a search until the model looks for them
        return {"type": "stdio", **plain, "alwaysLoad": True}
    return plain


def _at_home(client: Client, path: str, home: str, env: Mapping[str, str]) -> str:
    given = env.get(client.home_variable, "") if client.home_variable else ""
    if not given:
        return join(home, path)
    inside = path.removeprefix(client.home_default + "/")
    return join(given, inside)
