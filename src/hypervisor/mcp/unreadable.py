"""Answers lines that the SDK cannot read: it would drop them silently, and the client would wait
forever."""

from __future__ import annotations

import json
from typing import Any

from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

NOT_JSON = "not valid JSON. Nothing was done."
HALF = "the request contains a lone surrogate, which is not valid Unicode. Nothing was done."
NO_REQUEST = "not a JSON-RPC 2.0 request. Nothing was done."
TOO_MUCH = "the request is nested too deeply, or has a number that is too long. Nothing was done."


def complaint(error: Exception) -> JSONRPCError | None:
    """The error to answer; None if no answer is expected."""
    if not isinstance(error, ValidationError):
        return _error(None, PARSE_ERROR, NOT_JSON)
    problems = error.errors(include_url=False, include_context=False)
    line = next((item["input"] for item in problems if item["type"] == "json_invalid"), None)
    if line is None:
        return _of_message(_message_in(problems), NO_REQUEST)
    if not line.strip():
        return None
    try:
        message = json.loads(line)  # takes more than the SDK does
    except RecursionError:
        return _error(None, INVALID_REQUEST, TOO_MUCH)
    except ValueError:
        return _error(None, PARSE_ERROR, NOT_JSON)
    return _of_message(message, TOO_MUCH if _is_unicode(message) else HALF)


def _message_in(problems: list[Any]) -> Any:
    """The whole message, from the problems that pydantic reports about it."""
    inputs = [item["input"] for item in problems if item["type"] in ("missing", "model_type")]
    return next((item for item in inputs if isinstance(item, dict)), inputs[0] if inputs else None)


def _of_message(message: Any, text: str) -> JSONRPCError | None:
    if not isinstance(message, dict):
        return _error(None, INVALID_REQUEST, NO_REQUEST)
    if "method" in message and "id" not in message:
        return None  # a notification, which expects no answer
    if "method" not in message and ("result" in message or "error" in message):
        return None  # it is an answer itself
    return _error(message.get("id"), INVALID_REQUEST, text)


def _error(number: Any, code: int, text: str) -> JSONRPCError:
    is_usable = type(number) in (int, str) and _is_unicode(number)
    data = ErrorData(code=code, message=text)
    return JSONRPCError(jsonrpc="2.0", id=number if is_usable else None, error=data)


def _is_unicode(value: Any) -> bool:
    """Whether it can be sent: half a character cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
