"""A stand-in for an agent program: edits a file and prints what it does as claude prints it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SESSION = "cb9323e4-423d-4d2a-90cd-d59d832c32d1"
USAGE = {"input_tokens": 1000, "output_tokens": 20, "cache_read_input_tokens": 0}
BEFORE, AFTER = "def area(a, b):\n    return a + b\n", "def area(a, b):\n    return a * b\n"
HOSTILE = "<img src=x onerror=window.owned=1>"


def config(folder: Path) -> str:
    """A table for config.toml: the agent `storyteller`."""
    program = folder / "storyteller"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{__file__}" "$@"\n')
    program.chmod(0o755)
    return f"""
[agents.storyteller]
like = "claude"
program = "{program}"
login = []
keys = []
provider = "storyteller"
"""


def say(kind: str, **members: Any) -> None:
    print(json.dumps({"type": kind, "session_id": SESSION, **members}), flush=True)


def message(*content: dict[str, Any]) -> None:
    says = {"role": "assistant", "model": "m", "content": list(content), "usage": USAGE}
    say("assistant", message={"id": "msg_1", "type": "message", **says})


def call(name: str, answer: str, failed: bool = False, **given: Any) -> None:
    message({"type": "tool_use", "id": "toolu_1", "name": name, "input": given})
    result = {"tool_use_id": "toolu_1", "type": "tool_result", "content": answer}
    say("user", message={"role": "user", "content": [{**result, "is_error": failed}]})


def main() -> None:
    sys.stdin.read()
    say("system", subtype="init", tools=["Bash", "Edit"], model="m", mcp_servers=[])
    message({"type": "text", "text": "I look at the code first."})
    call("Bash", f"{HOSTILE}\n1 failed\n2 passed", command="python -m pytest -q")
    Path("area.py").write_text(AFTER)
    call("Edit", "Changed.", file_path="area.py", old_string=BEFORE, new_string=AFTER)
    call("Bash", "no such file", failed=True, command="cat missing.txt")
    message({"type": "text", "text": f"It multiplies now. {HOSTILE}\nCOMPLETED: fixed the area"})
    totals = {"total_cost_usd": 0.0132, "usage": USAGE, "num_turns": 4, "duration_api_ms": 256}
    say("result", subtype="success", is_error=False, result="COMPLETED: fixed the area", **totals)


if __name__ == "__main__":
    main()
