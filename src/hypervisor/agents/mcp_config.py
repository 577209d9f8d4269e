"""Configures our MCP server for each agent program, in files of its private home, never in argv."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from hypervisor.agents.profile import AgentProfile
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


class Written(NamedTuple):
    path: str
    env: dict[str, str]  # variables that tell the program where it is


def write(
    profile: AgentProfile,
    home: str,
    env: dict[str, str],
    spec: AgentSpec,
    user_env: Mapping[str, str],
) -> Written:
    """Write the configuration file of this kind of program."""
    stream = profile.stream
    name, content = FORMS.get(stream, _claude)(env, spec)
    address = user_env.get("OPENAI_BASE_URL")
    if stream == "codex" and address:  # it no longer reads the variable
        content = f"openai_base_url = {_toml(address)}\n{content}"
    if stream == "codex":  # the commands it runs need no key
        content += f"[shell_environment_policy]\nexclude = {_toml(list(profile.keys))}\n"
    if stream == "gemini":
        content = json.dumps({**json.loads(content), **_gemini_login(user_env)}, indent=1)
    path = os.path.join(home, name)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    write_own(path, content)
    return Written(
        path,
        {"codex": {"CODEX_HOME": os.path.dirname(path)}, "opencode": {"OPENCODE_CONFIG": path}}.get(
            stream, {}
        ),
    )


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


def _entry(env: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"command": COMMAND, "args": [*ARGUMENTS, *TOOLS], "env": env, **more}


def _servers(entry: dict[str, Any], **more: Any) -> str:
    return json.dumps({"mcpServers": {SERVER: entry}, **more}, indent=1)


def _claude(env: dict[str, str], spec: AgentSpec) -> tuple[str, str]:
    return "mcp.json", _servers(_entry(env, type="stdio", alwaysLoad=True))


def _copilot(env: dict[str, str], spec: AgentSpec) -> tuple[str, str]:
    return "mcp.json", _servers(_entry(env, type="local", tools=["*"]))


def _gemini(env: dict[str, str], spec: AgentSpec) -> tuple[str, str]:
    turns = {"model": {"maxSessionTurns": spec.turns}} if spec.turns else {}
    general = {"maxAttempts": 3, "enableAutoUpdate": False}
    return ".gemini/settings.json", _servers(_entry(env, trust=True), general=general, **turns)


def _gemini_login(user_env: Mapping[str, str]) -> dict[str, Any]:
    """Set its login method, which it guesses wrongly if the user has set an address."""
    vertex = user_env.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("1", "true")
    key = user_env.get("GEMINI_API_KEY") and "gemini-api-key"
    kind = "vertex-ai" if vertex else key or "oauth-personal"
    return {"security": {"auth": {"selectedType": kind}}}


def _qwen(env: dict[str, str], spec: AgentSpec) -> tuple[str, str]:
    entry = _entry(env, trust=True)
    return ".qwen/settings.json", _servers(entry, tools={"toolSearch": {"enabled": False}})


def _opencode(env: dict[str, str], spec: AgentSpec) -> tuple[str, str]:
    entry = {
        "type": "local",
        "command": [COMMAND, *ARGUMENTS, *TOOLS],
        "environment": env,
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


def _codex(env: dict[str, str], spec: AgentSpec) -> tuple[str, str]:
    """JSON strings and lists are valid TOML."""
    lines = [
        f"[mcp_servers.{SERVER}]",
        f"command = {_toml(COMMAND)}",
        f"args = {_toml([*ARGUMENTS, *TOOLS])}",
        "required = true",
        "startup_timeout_sec = 120",  # 10 s are too short on a busy host
        'default_tools_approval_mode = "approve"',
        f"[mcp_servers.{SERVER}.env]",
        *(f"{_toml(name)} = {_toml(value)}" for name, value in env.items()),
        "[features]",
        "plugins = false",
        "shell_snapshot = false",  # a file in its home with the whole environment, keys included
    ]
    return ".codex/config.toml", "\n".join(lines) + "\n"


def _toml(value: str | list[str]) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


FORMS: dict[str, Callable[[dict[str, str], AgentSpec], tuple[str, str]]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
    "qwen": _qwen,
    "copilot": _copilot,
}
