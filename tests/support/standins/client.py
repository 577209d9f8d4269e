"""A stand-in's connection to its configured MCP server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.standins.run import Run


class Mcp:
    """A minimal client: JSON lines to a server and back."""

    def __init__(self, access: dict[str, Any]) -> None:
        self._server = subprocess.Popen(
            [access["command"], *access["args"]],
            env=access["env"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._number = 0

    def __enter__(self) -> Mcp:
        info = {"name": "standin", "version": "1"}
        given = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        self._ask("initialize", given)
        self._tell({"method": "notifications/initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(180)

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        return self._ask("tools/call", {"name": name, "arguments": arguments})

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        self._tell({"id": self._number, "method": method, "params": params})
        assert self._server.stdout is not None
        for line in self._server.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._number:
                return answer.get("result") or answer
        raise SystemExit("the MCP server has gone")

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._server.stdin.flush()


def mcp_access(run: Run) -> dict[str, Any]:
    """How the MCP server is started, from where this kind of program reads it."""
    if run.kind == "codex":
        import tomllib

        path = Path(os.environ["CODEX_HOME"]) / "config.toml"
        found: dict[str, Any] = tomllib.loads(path.read_text())["mcp_servers"]["hypervisor"]
        return found
    path = run.home / ".gemini/settings.json"
    if run.kind == "claude":
        path = Path(run.argv[run.argv.index("--mcp-config") + 1])
    entry: dict[str, Any] = json.loads(path.read_text())["mcpServers"]["hypervisor"]
    return entry
