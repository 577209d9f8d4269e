"""Answers what every client asks first, while the SDK is still being loaded.

A client asks who we are and what we offer before its agent begins, and the agent
waits for it. Those answers never change, so published.json keeps them: `make docs`
writes it, and tests/mcp/test_door.py holds it against the SDK, byte for byte. The SDK
takes over with the first question of another kind. It is shown the handshake too; its
own answer to that is dropped, for the client has had one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hypervisor.mcp.profiles import greeting

PUBLISHED = Path(__file__).with_name("published.json")
TOOLS = "tools/list"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")  # those with a handshake
PIECE = 1 << 16
HALF = r"\ud"  # begins what may be half a character: the SDK cannot read that


class Passed(NamedTuple):
    """What is left to the SDK."""

    lines: tuple[str, ...]
    greeted: int | str | None = None  # the id of the handshake that has had its answer


class Lines:
    """The lines of a pipe; what was read of it and not yet looked at can be taken along."""

    def __init__(self, source: int) -> None:
        self._source, self._read, self._ended = source, bytearray(), False

    def next(self) -> str:
        """The next line; "" at the end."""
        seen = 0
        while (end := self._read.find(b"\n", seen)) < 0 and not self._ended:
            seen = len(self._read)
            piece = os.read(self._source, PIECE)
            self._read += piece
            self._ended = not piece
        end = len(self._read) if end < 0 else end + 1
        line = self._read[:end].decode("utf-8", "replace")
        del self._read[:end]
        return line

    def rest(self) -> tuple[str, ...]:
        """What was read already; of a line that has begun, all of it."""
        lines = []
        while self._read:
            lines.append(self.next())
        return tuple(lines)


def meet(profile: str, source: int, target: int, begins: Callable[[], None]) -> Passed | None:
    """Answer until something else is asked; None if the client leaves before that. `begins` is
    called when a session has begun, in which more will be asked."""
    lines, published = Lines(source), _published()
    heard: list[str] = []
    greeted: int | str | None = None
    while line := lines.next():
        message = _plain(line)
        if message and greeted is not None and "id" not in message:
            heard.append(line)  # is told, wants no answer
            continue
        if greeted is None:
            answer = _greeting(profile, published, message)
        else:
            answer = _answer(profile, published, message)
        if answer is None:
            return Passed((*heard, line, *lines.rest()), greeted)
        if greeted is None:
            greeted = message["id"]
            heard.append(line)
        if not _sent(target, {"jsonrpc": "2.0", "id": message["id"], "result": answer}):
            return None
        if message["method"] == TOOLS:
            begins()
    return None


def _published() -> dict[str, Any]:
    """Nothing, if that was not written yet or is damaged: then the SDK answers."""
    try:
        found: dict[str, Any] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return {}


def _plain(line: str) -> dict[str, Any]:
    """A request or notification without anything peculiar; {} if it is none."""
    if HALF in line.lower():
        return {}
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    plain = (
        isinstance(message, dict)
        and message.keys() <= {"jsonrpc", "id", "method", "params"}
        and message.get("jsonrpc") == "2.0"
        and isinstance(message.get("method"), str)
        and type(message.get("id", 0)) in (int, str)
        and str(message.get("id", 0)).isascii()  # half a character could not be sent back
        and _is_plain_meta(message.get("params", {}))
    )
    return message if plain else {}


def _is_plain_meta(params: Any) -> bool:
    """Whether the parameters have nothing around them but, maybe, a place to tell progress."""
    if not isinstance(params, dict):
        return False
    meta = params.get("_meta", {})
    token = meta.get("progressToken", 0) if isinstance(meta, dict) else None
    return type(token) in (int, str) and meta.keys() <= {"progressToken"}


def _greeting(profile: str, published: Any, message: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer to a handshake, if it is one that needs no thought."""
    params = message.get("params", {})
    if message.get("method") != "initialize" or "id" not in message or not published:
        return None
    if params.keys() - {"_meta"} != {"protocolVersion", "capabilities", "clientInfo"}:
        return None
    can, client = params["capabilities"], params["clientInfo"]
    known = (
        params["protocolVersion"] in VERSIONS
        and isinstance(can, dict)
        and all(_is_usual(name, each) for name, each in can.items())
        and isinstance(client, dict)
        and {"name", "version"} <= client.keys()
        and all(isinstance(each, str) for each in client.values())
    )
    if not known:
        return None
    return greeting(profile, params["protocolVersion"], published["capabilities"])


def _is_usual(name: str, capability: Any) -> bool:
    """Whether the SDK will take it as well: what it looks into in other ways is left to it."""
    if not isinstance(capability, dict) or name in ("experimental", "extensions"):
        return bool(capability == {})
    return all(
        type(each) is bool if key == "listChanged" else each == {}
        for key, each in capability.items()
    )


def _answer(profile: str, published: Any, message: Mapping[str, Any]) -> dict[str, Any] | None:
    """What we offer, and whether we are there."""
    method = message.get("method")
    if message.get("params", {}).keys() - {"_meta"}:
        return None
    if method == TOOLS:
        return {"tools": [published["tools"][name] for name in published["profiles"][profile]]}
    answers: dict[str, dict[str, Any]] = published["answers"][profile]
    return {} if method == "ping" else answers.get(str(method))


def _sent(target: int, message: dict[str, Any]) -> bool:
    """False if nobody is there to hear it."""
    left = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    try:
        while left:
            left = left[os.write(target, left) :]
    except ConnectionError:
        return False
    return True
