"""OpenAI Responses, as codex speaks it."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.agents.real.moves import Call, Offered, Turn
from tests.agents.real.wires import CODE, Reply, event, text_of

NAME = "responses"


def read(path: str, body: dict[str, Any]) -> Turn:
    given = body.get("input") or []
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": given}]
    texts, calls, answers, replies = [body.get("instructions") or ""], [], {}, 0
    tools = list(body.get("tools") or [])
    for item in given:
        kind = item.get("type", "message")
        if kind == "additional_tools":
            tools += item["tools"]
        elif kind.endswith("_call"):
            replies += 1
            calls.append(item)
        elif kind.endswith("_call_output"):
            answers[item.get("call_id")] = text_of(item.get("output"))
        elif kind == "message" and item["role"] == "assistant":
            replies += 1
        elif kind == "message":
            texts.append(text_of(item["content"]))
    return Turn(
        NAME,
        body.get("model", ""),
        "\n".join(texts),
        replies,
        tuple(Call(*_called(item), answers.get(item.get("call_id"))) for item in calls),
        tuple(offered for tool in tools for offered in _offered(tool)),
        bool(body.get("stream")),
        "format" in (body.get("text") or {}),
    )


def _called(item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and arguments; of a call in code they are in its first line."""
    name, text = item.get("name", ""), item.get("arguments") or "{}"
    inside = re.match(r"/\* (\S+) (.*) \*/", item.get("input") or "")
    if inside:
        name, text = inside.groups()
    try:
        read = json.loads(text)
    except ValueError:
        return name, {}
    return name, read if isinstance(read, dict) else {}


def _offered(tool: dict[str, Any], space: str = "") -> list[Offered]:
    if tool.get("type") == "namespace":
        return [offered for inner in tool["tools"] for offered in _offered(inner, tool["name"])]
    if tool.get("type") == "custom" and tool["name"] == "exec":
        return [Offered("exec", space, CODE)]
    fields = (tool.get("parameters") or {}).get("properties", {})
    return [Offered(tool.get("name", tool["type"]), space, tuple(fields))]


def _item(reply: Reply) -> dict[str, Any]:
    if reply.tool is None:
        said = {"type": "output_text", "text": reply.text, "annotations": []}
        return {
            "type": "message",
            "id": f"msg_{reply.number}",
            "role": "assistant",
            "status": "completed",
            "content": [said],
        }
    item = {"call_id": f"call_{reply.number}", "name": reply.tool.name, "status": "completed"}
    if reply.tool.fields == CODE:
        item |= {"type": "custom_tool_call", "id": f"ctc_{reply.number}", "input": reply.args["js"]}
    else:
        item |= {
            "type": "function_call",
            "id": f"fc_{reply.number}",
            "arguments": json.dumps(reply.args),
        }
    return {**item, "namespace": reply.tool.space} if reply.tool.space else item


def whole(reply: Reply) -> dict[str, Any]:
    sent, output, cached = reply.tokens
    return {
        "id": f"resp_{reply.number}",
        "object": "response",
        "status": "completed",
        "model": reply.model,
        "output": [_item(reply)],
        "usage": {
            "input_tokens": sent,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": sent + output,
        },
    }


def _named(data: dict[str, Any]) -> str:
    return event(data, data["type"])


def stream(reply: Reply) -> list[str]:
    item, done = _item(reply), whole(reply)
    begun = {**done, "status": "in_progress", "output": [], "usage": None}
    events = [_named({"type": "response.created", "response": begun})]
    if reply.tool is None:
        empty = {**item, "content": [], "status": "in_progress"}
        events.append(
            _named({"type": "response.output_item.added", "output_index": 0, "item": empty})
        )
        delta = {"item_id": item["id"], "output_index": 0, "content_index": 0, "delta": reply.text}
        events.append(_named({"type": "response.output_text.delta", **delta}))
    events.append(_named({"type": "response.output_item.done", "output_index": 0, "item": item}))
    return [*events, _named({"type": "response.completed", "response": done})]


def failure(status: int, message: str) -> dict[str, Any]:
    kinds = {400: "invalid_request_error", 401: "invalid_api_key", 429: "rate_limit_exceeded"}
    kind = kinds.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "code": kind, "param": None}}


def broken(reply: Reply) -> list[str]:
    error = {
        "code": "server_error",
        "message": "The server had an error while processing your request",
    }
    failed = {**whole(reply), "status": "failed", "output": [], "usage": None, "error": error}
    return [*stream(reply)[:1], _named({"type": "response.failed", "response": failed})]
