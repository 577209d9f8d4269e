"""OpenAI chat completions, as opencode, qwen and copilot speak it."""

from __future__ import annotations

import json
from typing import Any

from tests.agents.real.moves import Call, Offered, Turn
from tests.agents.real.wires import Reply, event, text_of

NAME = "chat"


def read(path: str, body: dict[str, Any]) -> Turn:
    texts, answers, replies = [], {}, 0
    calls: list[dict[str, Any]] = []
    for message in body.get("messages", []):
        if message["role"] == "assistant":
            replies += 1
            calls += message.get("tool_calls") or []
        elif message["role"] == "tool":
            answers[message["tool_call_id"]] = text_of(message.get("content"))
        else:
            texts.append(text_of(message.get("content")))
    return Turn(
        NAME,
        body.get("model", ""),
        "\n".join(texts),
        replies,
        tuple(Call(c["function"]["name"], _args(c), answers.get(c["id"])) for c in calls),
        tuple(_offered(tool["function"]) for tool in body.get("tools") or []),
        bool(body.get("stream")),
        "response_format" in body,
    )


def _args(call: dict[str, Any]) -> dict[str, Any]:
    try:
        read = json.loads(call["function"].get("arguments") or "{}")
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def _offered(tool: dict[str, Any]) -> Offered:
    return Offered(tool["name"], "", tuple((tool.get("parameters") or {}).get("properties", {})))


def _usage(reply: Reply) -> dict[str, Any]:
    sent, output, cached = reply.tokens
    return {
        "prompt_tokens": sent,
        "completion_tokens": output,
        "total_tokens": sent + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _message(reply: Reply) -> dict[str, Any]:
    if reply.tool is None:
        return {"role": "assistant", "content": reply.text}
    function = {"name": reply.tool.name, "arguments": json.dumps(reply.args)}
    call = {"index": 0, "id": f"call_{reply.number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _stop(reply: Reply) -> str:
    return "stop" if reply.tool is None else "tool_calls"


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{reply.number}",
        "object": kind,
        "created": 1700000000,
        "model": reply.model,
    }


def whole(reply: Reply) -> dict[str, Any]:
    choice = {"index": 0, "message": _message(reply), "finish_reason": _stop(reply)}
    return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def stream(reply: Reply) -> list[str]:
    head = _head(reply, "chat.completion.chunk")
    said = {"index": 0, "delta": _message(reply), "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": _stop(reply)}
    return [
        event({**head, "choices": [said]}),
        event({**head, "choices": [end]}),
        event({**head, "choices": [], "usage": _usage(reply)}),
        "data: [DONE]\n\n",
    ]


def failure(status: int, message: str) -> dict[str, Any]:
    kinds = {400: "invalid_request_error", 401: "invalid_api_key", 429: "rate_limit_exceeded"}
    kind = kinds.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "code": kind, "param": None}}


def broken(reply: Reply) -> list[str]:
    error = failure(500, "The server had an error while processing your request")
    return [*stream(reply._replace(text="I begin", tool=None))[:1], event(error)]
