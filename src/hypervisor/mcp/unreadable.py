"""The answer to a line that the SDK cannot read. It would drop it without a word, and a client
that waits for its answer would wait for ever."""

from __future__ import annotations

import json
from typing import Any

from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

NOT_JSON = "this line is no JSON. Nothing was done."
HALF = "half a character (a lone surrogate) is in this request: ask without it. Nothing was done."
NO_REQUEST = "this is no JSON-RPC 2.0 request. Nothing was done."
TOO_MUCH = "this request is nested too deeply, or has a number that is too long. Nothing was done."


def complaint(error: Exception) -> JSONRPCError | None:
    """What is said of it; None where nobody waits for an answer."""
    if not isinstance(error, ValidationError):
        return _told(None, PARSE_ERROR, NOT_JSON)
    found = error.errors(include_url=False, include_context=False)
    line = next((each["input"] for each in found if each["type"] == "json_invalid"), None)
    if line is None:
        return _of_message(_message_in(found), NO_REQUEST)
    if not line.strip():
        return None
    try:
        message = json.loads(line)  # takes more than the SDK does
    except RecursionError:
        return _told(None, INVALID_REQUEST, TOO_MUCH)
    except ValueError:
        return _told(None, PARSE_ERROR, NOT_JSON)
    return _of_message(message, TOO_MUCH if _is_unicode(message) else HALF)


def _message_in(found: list[Any]) -> Any:
    """The whole message: what a field is missing in, or what is not even an object."""
    whole = [each["input"] for each in found if each["type"] in ("missing", "model_type")]
    return next((each for each in whole if isinstance(each, dict)), whole[0] if whole else None)


def _of_message(message: Any, said: str) -> JSONRPCError | None:
    if not isinstance(message, dict):
        return _told(None, INVALID_REQUEST, NO_REQUEST)
    if "method" in message and "id" not in message:
        return None  # it is told, and wants no answer
    if "method" not in message and ("result" in message or "error" in message):
        return None  # it is an answer itself
    return _told(message.get("id"), INVALID_REQUEST, said)


def _told(number: Any, code: int, said: str) -> JSONRPCError:
    known = type(number) in (int, str) and _is_unicode(number)
    what = ErrorData(code=code, message=said)
    return JSONRPCError(jsonrpc="2.0", id=number if known else None, error=what)


def _is_unicode(value: Any) -> bool:
    """Whether it can be sent: half a character cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
