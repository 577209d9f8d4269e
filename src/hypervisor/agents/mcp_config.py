"""Configures our MCP server for each agent program, in files of its private home, never in argv."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from hypervisor.agents.profile import AgentProfile
from hypervisor.core.records import NamedTuple
from hypervisor.queue.lease import Worker
from hypervisor.runs.spec import AgentSpec

SERVER = "hypervisor"
# Like our own workers: independent of PATH, PYTHONPATH and the current directory.
COMMAND = sys.executable
ARGUMENTS = ("-I", "-c", "from hypervisor.app import main; main()", "mcp")
TOOLS = ("--tools", "worker")
# Variables that the server process needs to open the store.
PASSED = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "XDG_RUNTIME_DIR",
    "XDG_DATA_HOME",
    "HV_ACTOR",
    "LOGNAME",
    "PGPASSWORD",
    "PGPASSFILE",
    "PGSERVICEFILE",
    "PGSSLKEY",
)

# A snapshot is a file in its home with the whole environment, keys included.
CODEX_FEATURES = "[features]\nplugins = false\nshell_snapshot = false\n"
QWEN_TOOLS: dict[str, Any] = {"tools": {"toolSearch": {"enabled": False}}}


class McpAccess(NamedTuple):
    """Settings for the MCP server of an attempt: the `token` if the worker has claimed the task;
    otherwise the worker's process, which owns the agent's claims."""

    store: str
    batch: str
    token: str = ""
    keeper_pid: int = 0
    keeper_name: str = ""
    pull: int = 0
    capabilities: tuple[str, ...] = ()
    mark: tuple[str, str] = ("", "")  # the variable that marks leftover processes, and its value

    def env(self, user_env: Mapping[str, str]) -> dict[str, str]:
        env = {name: user_env[name] for name in PASSED if user_env.get(name)}
        env |= {"HYPERVISOR_STORE": self.store, "HV_BATCH": self.batch}
        if self.token:
            env["HV_TOKEN"] = self.token
        if self.keeper_pid:
            env["HV_KEEPER_PID"] = str(self.keeper_pid)
            env["HV_KEEPER_NAME"] = self.keeper_name
            env["HV_PULL"] = str(self.pull)
        if self.capabilities:
            env["HV_CAPABILITIES"] = ",".join(self.capabilities)
        name, value = self.mark
        return {**env, name: value} if name else env


def worker_access(
    profile: AgentProfile, spec: AgentSpec, batch: str, store: str, me: Worker
) -> McpAccess:
    """For all sessions of one worker. A pull agent claims in the worker's name."""
    access = McpAccess(store if "://" in store else os.path.abspath(store), batch)
    if spec.mode != "pull":
        return access
    labels = (*profile.capabilities, f"agent:{profile.name}")
    return access._replace(
        keeper_pid=me.pid, keeper_name=me.name, pull=spec.pull, capabilities=labels
    )


class ServerEntry(NamedTuple):
    """How a program starts the server, or what leads to it."""

    words: tuple[str, ...]
    env: dict[str, str]


def direct_entry(env: dict[str, str]) -> ServerEntry:
    return ServerEntry((COMMAND, *ARGUMENTS, *TOOLS), env)


class Written(NamedTuple):
    path: str
    env: dict[str, str]  # variables that tell the program where it is


def write(
    profile: AgentProfile,
    home: str,
    entry: ServerEntry,
    spec: AgentSpec,
    user_env: Mapping[str, str],
) -> Written:
    """Write the configuration file of this kind of program."""
    stream = profile.stream
    name, content = FORMS.get(stream, _claude)(entry, spec)
    if stream == "codex":
        content = _codex_settings(profile, user_env, content)
    if stream == "gemini":
        content = json.dumps({**json.loads(content), **_gemini_login(user_env)}, indent=1)
    path = os.path.join(home, name)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    write_own(path, content)
    if stream == "acp":
        _write_for_acp(profile, home, user_env)
    return Written(
        path,
        {"codex": {"CODEX_HOME": os.path.dirname(path)}, "opencode": {"OPENCODE_CONFIG": path}}.get(
            stream, {}
        ),
    )


def _write_for_acp(profile: AgentProfile, home: str, user_env: Mapping[str, str]) -> None:
    """What cannot be said over ACP: Qwen would hide our tools behind a search; codex needs its
    address, and would save its key in a file."""
    files = {".qwen/settings.json": json.dumps(QWEN_TOOLS)}
    if profile.calls_as == "codex":
        content = _codex_settings(profile, user_env, CODEX_FEATURES)
        if user_env.get("CODEX_API_KEY") or user_env.get("OPENAI_API_KEY"):
            content = f'cli_auth_credentials_store = "ephemeral"\n{content}'
        files[".codex/config.toml"] = content
    for name, content in files.items():
        path = os.path.join(home, name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_own(path, content)


def _codex_settings(profile: AgentProfile, user_env: Mapping[str, str], content: str) -> str:
    """With its address, as it no longer reads the variable; the commands it runs need no key."""
    if address := user_env.get("OPENAI_BASE_URL"):
        content = f"openai_base_url = {_toml(address)}\n{content}"
    return f"{content}[shell_environment_policy]\nexclude = {_toml(list(profile.keys))}\n"


def write_own(path: str, content: str) -> None:
    """Write a file in a home. An earlier agent may have left anything at that path: a link, a pipe,
    a folder."""
    for old in (path, path + ".new"):
        with suppress(OSError):
            os.unlink(old)
        shutil.rmtree(old, ignore_errors=True)
    handle = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(content)
    os.rename(path + ".new", path)


def _entry(server: ServerEntry, **more: Any) -> dict[str, Any]:
    program, *arguments = server.words
    return {"command": program, "args": arguments, "env": server.env, **more}


def _servers(entry: dict[str, Any], **more: Any) -> str:
    return json.dumps({"mcpServers": {SERVER: entry}, **more}, indent=1)


def _claude(server: ServerEntry, spec: AgentSpec) -> tuple[str, str]:
    return "mcp.json", _servers(_entry(server, type="stdio", alwaysLoad=True))


def _acp(server: ServerEntry, spec: AgentSpec) -> tuple[str, str]:
    """Read by our bridge, and by Copilot, which takes no local servers over ACP."""
    return "mcp.json", _servers(_entry(server, type="stdio", tools=["*"]))


def _copilot(server: ServerEntry, spec: AgentSpec) -> tuple[str, str]:
    return "mcp.json", _servers(_entry(server, type="local", tools=["*"]))


def _gemini(server: ServerEntry, spec: AgentSpec) -> tuple[str, str]:
    turns = {"model": {"maxSessionTurns": spec.turns}} if spec.turns else {}
    general = {"maxAttempts": 3, "enableAutoUpdate": False}
    return ".gemini/settings.json", _servers(_entry(server, trust=True), general=general, **turns)


def _gemini_login(user_env: Mapping[str, str]) -> dict[str, Any]:
    """Set its login method, which it guesses wrongly if the user has set an address."""
    vertex = user_env.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("1", "true")
    key = user_env.get("GEMINI_API_KEY") and "gemini-api-key"
    kind = "vertex-ai" if vertex else key or "oauth-personal"
    return {"security": {"auth": {"selectedType": kind}}}


def _qwen(server: ServerEntry, spec: AgentSpec) -> tuple[str, str]:
    return ".qwen/settings.json", _servers(_entry(server, trust=True), **QWEN_TOOLS)


def _opencode(server: ServerEntry, spec: AgentSpec) -> tuple[str, str]:
    entry = {
        "type": "local",
        "command": list(server.words),
        "environment": server.env,
        "enabled": True,
        "timeout": 120_000,
    }
    config = {"mcp": {SERVER: entry}, "permission": _opencode_permissions(spec)}
    return "opencode.json", json.dumps(config, indent=1)


def _opencode_permissions(spec: AgentSpec) -> dict[str, str]:
    """Its permissions for a mode. Anything it would ask about is denied: no one can answer."""
    edits = "allow" if spec.permissions in ("edit", "full") else "deny"
    rest = "allow" if spec.permissions == "full" else "deny"
    rules = {"edit": edits, "bash": rest, "webfetch": rest, "external_directory": rest}
    return rules | dict.fromkeys(spec.allow, "allow")


def _codex(server: ServerEntry, spec: AgentSpec) -> tuple[str, str]:
    """JSON strings and lists are valid TOML."""
    lines = [
        f"[mcp_servers.{SERVER}]",
        f"command = {_toml(server.words[0])}",
        f"args = {_toml(list(server.words[1:]))}",
        "required = true",
        "startup_timeout_sec = 120",  # 10 s are too short on a busy host
        'default_tools_approval_mode = "approve"',
        f"[mcp_servers.{SERVER}.env]",
        *(f"{_toml(name)} = {_toml(value)}" for name, value in server.env.items()),
    ]
    return ".codex/config.toml", "\n".join(lines) + "\n" + CODEX_FEATURES


def _toml(value: str | list[str]) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


FORMS: dict[str, Callable[[ServerEntry, AgentSpec], tuple[str, str]]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
    "qwen": _qwen,
    "copilot": _copilot,
    "acp": _acp,
}
