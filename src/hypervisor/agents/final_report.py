"""The final report of an agent: a JSON object, or a last line of a fixed form.

Its members have the same meaning as in a result (result.py).
"""

from __future__ import annotations

import json
import re
from typing import Any

from hypervisor.agents.stream_state import StreamState
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput

COMPLETED, BLOCKED, FAILED, EMPTY = "completed", "blocked", "failed", "empty"
STATUSES = (COMPLETED, BLOCKED, FAILED)
MAX_SIZE = 1 << 20  # characters of a message that are searched
MAX_TRIES = 2_000  # positions at which an object may begin
MAX_TEXT_LENGTH = 4_000
TEXTS = ("summary", "reason", "evidence", "next_step", "question")

REPORT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {
            "type": "string",
            "enum": list(STATUSES),
            "description": "completed: the work is done; blocked: something outside must change "
            "first; failed: it cannot be done",
        },
        "summary": {"type": "string", "description": "what was done, in one or two sentences"},
        "reason": {"type": "string", "description": "blocked or failed: why"},
        "evidence": {"type": "string", "description": "what shows it: an error, a file, a line"},
        "next_step": {"type": "string", "description": "what would unblock it"},
        "question": {
            "type": "string",
            "description": "blocked: what a person has to answer, if that would unblock it",
        },
        "receipts": {
            "type": "array",
            "items": {"type": "string"},
            "description": "what was actually done, one line each",
        },
        "category": {"type": "string", "description": "a short label for the review"},
        "rationale": {"type": "string", "description": "why this category"},
        "actions": {
            "type": "array",
            "items": {"type": "object"},
            "description": "proposals that a person has to approve first",
        },
        "data": {"description": "the result itself, in whatever form the task asks for"},
    },
    "required": ["status", "summary"],
    "additionalProperties": False,
}

_OPENING = re.compile(r'\{\s*"')
_LINE = re.compile(
    r"^[\s>*_`#-]*(?P<word>COMPLETED|BLOCKED|FAILED|QUEUE EMPTY)\b[*_`]*\s*"
    r"(?:[:.–—-]+\s*)?(?P<text>.*?)[\s*_`]*$"
)


def report_in(state: StreamState) -> dict[str, Any] | None:
    """The report of a session: its structured result, else the last JSON object in its last
    message, else the last line of that message."""
    return structured_in(state) or _from_line(state.message)


def structured_in(state: StreamState) -> dict[str, Any] | None:
    """The report as an object; None if there is only text."""
    result = state.result
    if isinstance(result, str):
        result = _last_object(result)
    return _checked(result) or _checked(_last_object(state.message))


def schema_with(data: object) -> dict[str, Any]:
    """The schema of a report whose `data` has the user's schema."""
    properties = {**REPORT_SCHEMA["properties"], "data": data}
    return {**REPORT_SCHEMA, "properties": properties}


def _checked(result: object) -> dict[str, Any] | None:
    """The report, with known members of the right type and without values that cannot be stored."""
    if not isinstance(result, dict):
        return None
    status = result.get("status")
    status = status.strip().casefold() if isinstance(status, str) else ""
    if status not in STATUSES:
        return None
    report = {name: value for name, value in result.items() if _storable(value)}
    report["status"] = status
    for name in TEXTS:
        if name in report:
            report[name] = _text(report[name])
    if not _storable(report):
        report = {name: report[name] for name in ("status", *TEXTS) if name in report}
    return report


def _storable(value: Any) -> bool:
    try:
        return validate.json_value("a report", value) is not None
    except InvalidInput:
        return False


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("\0", "").encode("utf-8", "replace").decode().strip()[:MAX_TEXT_LENGTH]


def _last_object(text: str) -> Any:
    """The last JSON object with a status in a text. Nested objects do not count: a report may
    quote others."""
    text = text[-MAX_SIZE:]
    decoder = json.JSONDecoder(parse_constant=_no_number)
    last, place = None, 0
    for _ in range(MAX_TRIES):
        opening = _OPENING.search(text, place)
        if opening is None:
            break
        try:
            value, place = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            place = opening.start() + 1
            continue
        if "status" in value:
            last = value
    return last


def _no_number(name: str) -> Any:
    raise ValueError(name)


def _from_line(text: str) -> dict[str, Any] | None:
    lines = [line for line in text[-MAX_SIZE:].splitlines() if line.strip(" \t`*_")]
    if not lines:
        return None
    match = _LINE.match(lines[-1][:MAX_TEXT_LENGTH])
    if match is None:
        return None
    word, text_after = match["word"], match["text"].strip()
    if word == "QUEUE EMPTY":
        return {"status": EMPTY, "summary": text_after}
    if word == "COMPLETED":
        return {"status": COMPLETED, "summary": text_after or _summary(lines[:-1])}
    reason, evidence, next_step = _parts(text_after, lines[:-1])
    return {
        "status": word.lower(),
        "summary": "",
        "reason": reason,
        "evidence": evidence,
        "next_step": next_step,
    }


def _summary(lines: list[str]) -> str:
    """The line before the last one, which is usually the conclusion."""
    return lines[-1].strip()[:MAX_TEXT_LENGTH] if lines else ""


def _parts(text: str, lines: list[str]) -> tuple[str, str, str]:
    """BLOCKED: reason / evidence / next step, on that line or as labeled lines before it."""
    parts = [part.strip() for part in text.split(" / ")]
    if len(parts) >= 3:
        return parts[0], " / ".join(parts[1:-1]), parts[-1]
    return (
        text or _labelled(lines, "reason"),
        parts[1] if len(parts) == 2 else _labelled(lines, "evidence"),
        _labelled(lines, "next step"),
    )


def _labelled(lines: list[str], label: str) -> str:
    for line in reversed(lines):
        plain = line.strip(" \t>*_`#-")
        if plain.casefold().startswith(label):
            value = plain[len(label) :].lstrip(" *_`")
            if value.startswith(":"):
                return value[1:].strip(" *_`")[:MAX_TEXT_LENGTH]
    return ""
