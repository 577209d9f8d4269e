"""The wire APIs of the model vendors, as far as the agent CLIs use them: one file each.

`read(path, body)` makes a Turn of a request; `stream(reply)` and `whole(reply)` write the answer;
`failure(status, message)` is the body of an HTTP error; `broken(reply)` a stream with an error.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.agents.real.moves import Move, Offered, Turn

SHELLS = {
    "Bash": "command",
    "bash": "command",
    "run_shell_command": "command",
    "exec_command": "cmd",
    "shell_command": "command",
    "shell": "command",
}
CODE = ("js",)  # the fields of codex's tool for code that calls the others


class Reply(NamedTuple):
    """A move, with its tool found among those offered."""

    number: int
    model: str
    text: str
    tool: Offered | None
    args: dict[str, Any]
    tokens: tuple[int, int, int]


def reply(move: Move, turn: Turn, number: int) -> Reply:
    """A tool that is not offered is named in the answer, so that a test sees it in the
    transcript."""
    if not move.tool:
        return Reply(number, turn.model, move.text, None, {}, move.tokens)
    code = next((tool for tool in turn.tools if tool.fields == CODE), None)
    if code is not None and move.tool != "StructuredOutput":
        return Reply(number, turn.model, "", code, {"js": _javascript(move)}, move.tokens)
    if move.tool == "shell":
        tool, args = _shell(turn, move.args["command"])
    else:
        tool, args = turn.tool(move.tool), move.args
    if tool is None:
        text = move.text or f"NO SUCH TOOL: {move.tool}"
        return Reply(number, turn.model, text, None, {}, move.tokens)
    return Reply(number, turn.model, "", tool, args, move.tokens)


def _shell(turn: Turn, command: str) -> tuple[Offered | None, dict[str, Any]]:
    for name, field in SHELLS.items():
        tool = next((tool for tool in turn.tools if tool.name == name), None)
        if tool is not None:
            args: dict[str, Any] = {field: command}
            if name == "shell":
                args = {field: ["sh", "-c", command]}
            if "description" in tool.fields:
                args["description"] = "run it"
            if "is_background" in tool.fields:
                args["is_background"] = False
            return tool, args
    return None, {}


def _javascript(move: Move) -> str:
    """The call as codex's newer models make it. The comment tells later turns what was called."""
    args = {"cmd": move.args["command"]} if move.tool == "shell" else move.args
    name = "exec_command" if move.tool == "shell" else move.tool
    return (
        f"/* {move.tool} {json.dumps(move.args)} */\n"
        f"const ours = (name) => name.endsWith({json.dumps(name)});\n"
        f"const found = ALL_TOOLS.map((tool) => tool.name).find(ours);\n"
        f'text(found ? await tools[found]({json.dumps(args)}) : "NO SUCH TOOL: {move.tool}");\n'
    )


def event(data: dict[str, Any], name: str = "") -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n"


def text_of(content: Any) -> str:
    """The text in a message's content, whatever its shape."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return "\n".join(
            text_of(content[name])
            for name in ("text", "content", "output", "result")
            if name in content
        )
    if isinstance(content, list):
        return "\n".join(text_of(part) for part in content)
    return "" if content is None else json.dumps(content)
