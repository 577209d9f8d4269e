"""Anthropic Messages, as claude speaks it."""

from __future__ import annotations

import json
from typing import Any

from tests.agents.real.moves import Call, Offered, Turn
from tests.agents.real.wires import Reply, event, text_of

NAME = "messages"
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def read(path: str, body: dict[str, Any]) -> Turn:
    messages = body.get("messages", [])
    texts, calls, answers, replies = [text_of(body.get("system"))], [], {}, 0
    for message in messages:
        replies += message["role"] == "assistant"
        parts = message["content"]
        for part in parts if isinstance(parts, list) else [{"type": "text", "text": parts}]:
            if part["type"] == "tool_use":
                calls.append(part)
            elif part["type"] == "tool_result":
                answers[part["tool_use_id"]] = text_of(part.get("content"))
            elif part["type"] == "text" and message["role"] == "user":
                texts.append(part["text"])
    return Turn(
        NAME,
        body.get("model", ""),
        "\n".join(texts),
        replies,
        tuple(Call(part["name"], part["input"], answers.get(part["id"])) for part in calls),
        tuple(_offered(tool) for tool in body.get("tools") or []),
        bool(body.get("stream")),
    )


def _offered(tool: dict[str, Any]) -> Offered:
    fields = (tool.get("input_schema") or {}).get("properties", {})
    return Offered(tool["name"], "", tuple(fields))


def _usage(reply: Reply, output: int) -> dict[str, int]:
    sent, _, cached = reply.tokens
    return {
        "input_tokens": sent,
        "output_tokens": output,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
    }


def _message(
    reply: Reply, content: list[dict[str, Any]], stop: str | None, output: int
) -> dict[str, Any]:
    return {
        "id": f"msg_{reply.number:024d}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": _usage(reply, output),
    }


def _block(reply: Reply) -> dict[str, Any]:
    if reply.tool is None:
        return {"type": "text", "text": reply.text}
    return {
        "type": "tool_use",
        "id": f"toolu_{reply.number:024d}",
        "name": reply.tool.name,
        "input": reply.args,
    }


def _stop(reply: Reply) -> str:
    return "end_turn" if reply.tool is None else "tool_use"


def whole(reply: Reply) -> dict[str, Any]:
    return _message(reply, [_block(reply)], _stop(reply), reply.tokens[1])


def _named(data: dict[str, Any]) -> str:
    return event(data, data["type"])


def stream(reply: Reply) -> list[str]:
    block = _block(reply)
    if reply.tool is None:
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": reply.text}
    else:
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.args)}
    stop = {"stop_reason": _stop(reply), "stop_sequence": None}
    return [
        _named({"type": "message_start", "message": _message(reply, [], None, 1)}),
        _named({"type": "content_block_start", "index": 0, "content_block": empty}),
        _named({"type": "content_block_delta", "index": 0, "delta": delta}),
        _named({"type": "content_block_stop", "index": 0}),
        _named({"type": "message_delta", "delta": stop, "usage": _usage(reply, reply.tokens[1])}),
        _named({"type": "message_stop"}),
    ]


def failure(status: int, message: str) -> dict[str, Any]:
    kind = KINDS.get(status, "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": "req_scripted",
    }


def broken(reply: Reply) -> list[str]:
    error = {"type": "overloaded_error", "message": "Overloaded"}
    return [*stream(reply)[:1], _named({"type": "error", "error": error})]
