"""Command lines of the real agent CLIs, as the recordings use them, and where the programs are."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

KEY = "sk-fake-0123456789abcdef"
NAMES = ("claude", "codex", "gemini", "opencode", "qwen", "copilot")


def folder() -> Path:
    """Where scripts/agents.sh put the programs."""
    return Path(os.environ.get("HV_AGENTS_DIR", "/nonexistent"))


def program(name: str) -> list[str]:
    """How to start it: the program itself where there is one, never a shim."""
    modules = folder() / "node_modules"
    node22 = modules / "node/bin/node"
    return {
        "claude": [str(modules / "@anthropic-ai/claude-code/bin/claude.exe")],
        "codex": [_native("@openai/codex-*/vendor/*/bin/codex")],
        "gemini": [
            shutil.which("node") or "node",
            str(modules / "@google/gemini-cli/bundle/gemini.js"),
        ],
        "opencode": [str(modules / "opencode-ai/bin/opencode.exe")],
        "qwen": [str(node22), str(modules / "@qwen-code/qwen-code/cli-entry.js")],
        "copilot": [_native("@github/copilot-*/copilot")],
    }[name]


def _native(pattern: str) -> str:
    """The program in the package for this platform: the only one that is installed."""
    found = sorted((folder() / "node_modules").glob(pattern))
    return str(found[0]) if found else str(folder() / pattern)


def installed(name: str) -> bool:
    return all(Path(part).exists() for part in program(name))


class Asking(NamedTuple):
    """One run of a CLI, with the same options for all of them."""

    url: str
    home: Path
    prompt: str
    mode: str = "edit"
    mcp: str = "toy"  # toy, dead or none
    session: str = ""
    turns: int = 0
    schema: dict[str, Any] | None = None
    model: str = "scripted-1"  # "" is the program's own choice
    retries: int = 1


class Line(NamedTuple):
    argv: list[str]
    env: dict[str, str]
    stdin: str = ""


def _server(asking: Asking) -> dict[str, Any]:
    if asking.mcp == "dead":
        return {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no server here')"]}
    return {"command": sys.executable, "args": [str(Path(__file__).with_name("toy_mcp.py"))]}


def _write(path: Path, data: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(path)


def _base(asking: Asking, **more: str) -> dict[str, str]:
    for part in ("home", "tmp"):
        (asking.home / part).mkdir(parents=True, exist_ok=True)
    env = {"HOME": str(asking.home / "home"), "TMPDIR": str(asking.home / "tmp"), "LANG": "C.UTF-8"}
    return {**env, "PATH": os.environ["PATH"], **more}


def line(name: str, asking: Asking) -> Line:
    return {
        "claude": _claude,
        "codex": _codex,
        "gemini": _gemini,
        "opencode": _opencode,
        "qwen": _qwen,
        "copilot": _copilot,
    }[name](asking)


def _claude(asking: Asking) -> Line:
    env = _base(
        asking,
        ANTHROPIC_BASE_URL=asking.url,
        ANTHROPIC_API_KEY=KEY,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
        CLAUDE_CODE_MAX_RETRIES=str(asking.retries),
    )
    servers = (
        {} if asking.mcp == "none" else {"hypervisor": {**_server(asking), "alwaysLoad": True}}
    )
    config = _write(asking.home / "mcp.json", {"mcpServers": servers})
    tools = {"read-only": "mcp__hypervisor,Read,Grep,Glob"}.get(
        asking.mode, "mcp__hypervisor,Bash,Edit,Write,Read,Grep,Glob"
    )
    argv = [*program("claude"), "-p", "--output-format", "stream-json", "--verbose"]
    argv += ["--mcp-config", config, "--strict-mcp-config", "--setting-sources", ""]
    argv += ["--permission-mode", "dontAsk", f"--allowedTools={tools}"]
    argv += ["--resume", asking.session] if asking.session else []
    argv += ["--max-turns", str(asking.turns)] if asking.turns else []
    argv += ["--json-schema", json.dumps(asking.schema)] if asking.schema else []
    return Line(argv, env, asking.prompt)


def _codex(asking: Asking) -> Line:
    env = _base(asking, CODEX_HOME=str(asking.home / "home/.codex"), OPENAI_API_KEY=KEY)
    config = f"""
model = "{asking.model}"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{asking.url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = {asking.retries}
stream_max_retries = {asking.retries}
supports_websockets = false
[features]
plugins = false
"""
    if not asking.model:
        env["CODEX_API_KEY"] = KEY
        config = f'openai_base_url = "{asking.url}/v1"\n[features]\nplugins = false\n'
    if asking.mcp != "none":
        server = _server(asking)
        config += f"""
[mcp_servers.hypervisor]
command = {json.dumps(server["command"])}
args = {json.dumps(server["args"])}
required = {"false" if asking.mcp == "dead-optional" else "true"}
default_tools_approval_mode = "approve"
"""
    _write(asking.home / "home/.codex/config.toml", config)
    sandbox = {"read-only": "read-only", "full": "danger-full-access"}.get(
        asking.mode, "workspace-write"
    )
    argv = [*program("codex"), "exec"]
    argv += ["resume"] if asking.session else []
    argv += ["--json", "--skip-git-repo-check"]
    argv += ["-c", f'sandbox_mode="{sandbox}"']
    if asking.schema:
        argv += ["--output-schema", _write(asking.home / "schema.json", asking.schema)]
    argv += [asking.session] if asking.session else []
    return Line([*argv, "-"], env, asking.prompt)


def _gemini(asking: Asking) -> Line:
    env = _base(
        asking, GOOGLE_GEMINI_BASE_URL=asking.url, GEMINI_API_KEY=KEY, GEMINI_CLI_NO_RELAUNCH="true"
    )
    settings: dict[str, Any] = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"maxAttempts": asking.retries + 1, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    if asking.mcp != "none":
        settings["mcpServers"] = {"hypervisor": {**_server(asking), "trust": True}}
    if asking.turns:
        settings["model"] = {"maxSessionTurns": asking.turns}
    _write(asking.home / "home/.gemini/settings.json", settings)
    mode = {"read-only": "plan", "full": "yolo"}.get(asking.mode, "yolo")
    argv = [
        *program("gemini"),
        "-m",
        "gemini-2.5-pro",
        "-o",
        "stream-json",
        "--approval-mode",
        mode,
        "--skip-trust",
    ]
    argv += ["--resume", asking.session] if asking.session else []
    return Line(argv, env, asking.prompt)


def _opencode(asking: Asking) -> Line:
    env = _base(
        asking,
        OPENCODE_DISABLE_AUTOUPDATE="1",
        OPENCODE_DISABLE_MODELS_FETCH="1",
        OPENCODE_DISABLE_LSP_DOWNLOAD="1",
        OPENCODE_DISABLE_DEFAULT_PLUGINS="1",
        SCRIPTED_KEY=KEY,
    )
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{asking.url}/v1", "apiKey": "{env:SCRIPTED_KEY}"},
        "models": {"scripted-1": {"name": "scripted-1", "tool_call": True}},
    }
    config: dict[str, Any] = {"model": "scripted/scripted-1", "provider": {"scripted": provider}}
    if asking.mode == "read-only":
        config["permission"] = {"edit": "deny", "bash": "deny", "webfetch": "deny"}
    if asking.mcp != "none":
        server = _server(asking)
        config["mcp"] = {
            "hypervisor": {
                "type": "local",
                "command": [server["command"], *server["args"]],
                "enabled": True,
            }
        }
    _write(asking.home / "home/.config/opencode/opencode.json", config)
    argv = [*program("opencode"), "run", "--format", "json"]
    argv += [] if asking.mode == "read-only" else ["--auto"]
    argv += ["--session", asking.session] if asking.session else []
    return Line(argv, env, asking.prompt)


def _qwen(asking: Asking) -> Line:
    env = _base(
        asking, OPENAI_BASE_URL=f"{asking.url}/v1", OPENAI_API_KEY=KEY, OPENAI_MODEL="scripted-1"
    )
    settings: dict[str, Any] = {
        "tools": {"toolSearch": {"enabled": False}},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "model": {"generationConfig": {"maxRetries": asking.retries}},
    }
    if asking.mcp != "none":
        settings["mcpServers"] = {"hypervisor": {**_server(asking), "trust": True}}
    _write(asking.home / "home/.qwen/settings.json", settings)
    mode = {"read-only": "plan"}.get(asking.mode, "yolo")
    argv = [*program("qwen"), "--auth-type", "openai", "-o", "stream-json", "--approval-mode", mode]
    argv += ["--resume", asking.session] if asking.session else []
    argv += ["--max-session-turns", str(asking.turns)] if asking.turns else []
    return Line(argv, env, asking.prompt)


def _copilot(asking: Asking) -> Line:
    env = _base(
        asking,
        COPILOT_PROVIDER_BASE_URL=f"{asking.url}/v1",
        COPILOT_PROVIDER_API_KEY=KEY,
        COPILOT_MODEL="scripted-1",
        COPILOT_OFFLINE="true",
        COPILOT_AUTO_UPDATE="false",
    )
    server = {**_server(asking), "type": "local", "tools": ["*"]}
    servers = {} if asking.mcp == "none" else {"hypervisor": server}
    config = _write(asking.home / "mcp.json", {"mcpServers": servers})
    argv = [*program("copilot"), "--output-format", "json", "--no-auto-update"]
    argv += [] if asking.mode == "read-only" else ["--allow-all-tools"]
    argv += [
        "--additional-mcp-config",
        f"@{config}",
        "--usage-output-file",
        str(asking.home / "usage.json"),
    ]
    argv += [f"--resume={asking.session}"] if asking.session else []
    return Line([*argv, "-p", asking.prompt], env)
