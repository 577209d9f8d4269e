"""Gemini generateContent and streamGenerateContent, as gemini speaks it."""

from __future__ import annotations

from typing import Any

from tests.agents.real.moves import Call, Offered, Turn
from tests.agents.real.wires import Reply, event, text_of

NAME = "gemini"
STATES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


def read(path: str, body: dict[str, Any]) -> Turn:
    texts = [text_of((body.get("systemInstruction") or {}).get("parts"))]
    calls, answers, replies = [], [], 0
    for content in body.get("contents", []):
        replies += content.get("role") == "model"
        for part in content.get("parts", []):
            if "functionCall" in part:
                calls.append(part["functionCall"])
            elif "functionResponse" in part:
                answers.append(text_of(part["functionResponse"].get("response")))
            elif "text" in part and content.get("role") != "model":
                texts.append(part["text"])
    shown = [*answers, *[None] * len(calls)]
    config = body.get("generationConfig") or {}
    return Turn(
        NAME,
        path.split("/models/")[-1].split(":")[0],
        "\n".join(texts),
        replies,
        tuple(Call(c["name"], c.get("args") or {}, a) for c, a in zip(calls, shown, strict=False)),
        tuple(
            _offered(f)
            for tool in body.get("tools") or []
            for f in tool.get("functionDeclarations", [])
        ),
        ":streamGenerateContent" in path,
        "responseJsonSchema" in config or "responseSchema" in config,
    )


def _offered(tool: dict[str, Any]) -> Offered:
    schema = tool.get("parametersJsonSchema") or tool.get("parameters") or {}
    return Offered(tool["name"], "", tuple(schema.get("properties", {})))


def whole(reply: Reply) -> dict[str, Any]:
    sent, output, cached = reply.tokens
    part: dict[str, Any] = {"text": reply.text}
    if reply.tool is not None:
        call = {"id": f"call_{reply.number}", "name": reply.tool.name, "args": reply.args}
        part = {"functionCall": call, "thoughtSignature": "c2NyaXB0ZWQ="}
    return {
        "candidates": [
            {"content": {"parts": [part], "role": "model"}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {
            "promptTokenCount": sent,
            "candidatesTokenCount": output,
            "cachedContentTokenCount": cached,
            "totalTokenCount": sent + output,
        },
        "modelVersion": reply.model,
        "responseId": f"resp_{reply.number}",
    }


def stream(reply: Reply) -> list[str]:
    return [event(whole(reply))]


def failure(status: int, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": STATES.get(status, "INTERNAL")}}


def broken(reply: Reply) -> list[str]:
    begun = whole(reply)
    begun["candidates"][0] = {
        "content": {"parts": [{"text": "I begin"}], "role": "model"},
        "index": 0,
    }
    return [event(begun), event(failure(503, "The model is overloaded. Please try again later."))]
