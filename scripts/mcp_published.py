"""Writes what the MCP server answers to every client's first questions, as the SDK gives it.

`hv mcp` tells it from src/hypervisor/mcp/published.json before the SDK is loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from marked import ROOT, renewed

from hypervisor.mcp.first_answers import PUBLISHED, TOOLS
from hypervisor.mcp.profiles import PROFILES

LISTS = ("prompts/list", "resources/list", "resources/templates/list")
HV = "from hypervisor.app import main; main()"
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "docs", "version": "1"},
    "_meta": {"for": "the SDK, not the door"},
}


def answers(profile: str) -> dict[str, Any]:
    """What the SDK answers, by method."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, "-c", HV, "mcp", "--tools", profile],
            env={**os.environ, "HYPERVISOR_STORE": f"{folder}/store.db"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        ) as server,
    ):
        assert server.stdin and server.stdout
        found = {}
        for method in ("initialize", TOOLS, *LISTS):
            params = {"params": HELLO} if method == "initialize" else {}
            print(
                json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, **params}),
                file=server.stdin,
            )
            found[method] = json.loads(server.stdout.readline())["result"]
        server.stdin.close()
        return found


def text() -> str:
    """The file: one line for each tool and each answer, so that a change is easy to see."""
    found = {profile: answers(profile) for profile in PROFILES}
    tools = {tool["name"]: tool for each in found.values() for tool in each[TOOLS]["tools"]}
    parts = [
        f'"capabilities": {_line(found["all"]["initialize"]["capabilities"])}',
        f'"profiles": {_lines({p: [t["name"] for t in found[p][TOOLS]["tools"]] for p in found})}',
        f'"answers": {_lines({p: {m: found[p][m] for m in LISTS} for p in found})}',
        f'"tools": {_lines(tools)}',
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(entries: dict[str, Any]) -> str:
    return "{\n" + ",\n".join(f'"{name}": {_line(each)}' for name, each in entries.items()) + "\n}"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def main(arguments: list[str]) -> int:
    old = PUBLISHED.read_text(encoding="utf-8") if PUBLISHED.exists() else ""
    page = str(PUBLISHED.relative_to(ROOT))
    return renewed(page, old, text(), Path(__file__).name, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
