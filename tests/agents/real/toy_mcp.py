"""The smallest MCP server over stdio, with one tool, `complete_task`: recordings need no store."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {
    "name": "complete_task",
    "description": "Completes the task with its token.",
    "inputSchema": {
        "type": "object",
        "properties": {"token": {"type": "string"}, "summary": {"type": "string"}},
        "required": ["token"],
    },
    "annotations": {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        info = {"name": "hypervisor", "version": "0"}
        offers: dict[str, Any] = {"tools": {}}
        return {"protocolVersion": "2025-06-18", "capabilities": offers, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "The task is done."}], "isError": False}
    return {} if method == "ping" else None


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        said = answer(asked.get("method", ""), asked.get("params") or {})
        if said is None:
            body = {"error": {"code": -32601, "message": "Method not found"}}
        else:
            body = {"result": said}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **body}), flush=True)


if __name__ == "__main__":
    main()
