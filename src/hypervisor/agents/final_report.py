"""What an agent reports at its end: a JSON object, or one clear last line.

The members that a result may have (result.py) mean the same here.
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
LARGEST = 1 << 20  # characters of a message that are looked at
MOST_TRIES = 2_000  # places at which an object may begin
LONGEST_TEXT = 4_000
TEXTS = ("summary", "reason", "evidence", "next_step")

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
        "receipts": {
            "type": "array",
            "items": {"type": "string"},
            "description": "what was really done, one line each",
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
    """The report of a run, from what is most certain to what is least: its structured result,
    the last JSON object in its last message, that message's last line."""
    return structured_in(state) or _from_line(state.message)


def structured_in(state: StreamState) -> dict[str, Any] | None:
    """The report as an object, None if there is only prose."""
    given = state.result
    if isinstance(given, str):
        given = _last_object(given)
    return _checked(given) or _checked(_last_object(state.message))


def schema_with(data: object) -> dict[str, Any]:
    """The schema of reports whose `data` follows a schema of the user's."""
    properties = {**REPORT_SCHEMA["properties"], "data": data}
    return {**REPORT_SCHEMA, "properties": properties}


def _checked(given: object) -> dict[str, Any] | None:
    """A report whose known members are of the right kind; others stay as they are, but for what
    no store would take. A worker's mistake must not stop the ledger."""
    if not isinstance(given, dict):
        return None
    status = given.get("status")
    status = status.strip().casefold() if isinstance(status, str) else ""
    if status not in STATUSES:
        return None
    report = {name: value for name, value in given.items() if _storable(value)}
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
    return text.replace("\0", "").encode("utf-8", "replace").decode().strip()[:LONGEST_TEXT]


def _last_object(text: str) -> Any:
    """The last JSON object with a status that stands in a text. One inside another is part of
    that one: what a result quotes is no report."""
    text = text[-LARGEST:]
    decoder = json.JSONDecoder(parse_constant=_no_number)
    last, place = None, 0
    for _ in range(MOST_TRIES):
        opening = _OPENING.search(text, place)
        if opening is None:
            break
        try:
            found, place = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            place = opening.start() + 1
            continue
        if "status" in found:
            last = found
    return last


def _no_number(name: str) -> Any:
    raise ValueError(name)


def _from_line(text: str) -> dict[str, Any] | None:
    lines = [line for line in text[-LARGEST:].splitlines() if line.strip(" \t`*_")]
    if not lines:
        return None
    found = _LINE.match(lines[-1][:LONGEST_TEXT])
    if found is None:
        return None
    word, said = found["word"], found["text"].strip()
    if word == "QUEUE EMPTY":
        return {"status": EMPTY, "summary": said}
    if word == "COMPLETED":
        return {"status": COMPLETED, "summary": said or _summary(lines[:-1])}
    reason, evidence, next_step = _parts(said, lines[:-1])
    return {
        "status": word.lower(),
        "summary": "",
        "reason": reason,
        "evidence": evidence,
        "next_step": next_step,
    }


def _summary(lines: list[str]) -> str:
    """The last line before the closing one, which tends to be the conclusion."""
    return lines[-1].strip()[:LONGEST_TEXT] if lines else ""


def _parts(said: str, lines: list[str]) -> tuple[str, str, str]:
    """BLOCKED: reason / evidence / next step, on that line or as labelled lines before it."""
    parts = [part.strip() for part in said.split(" / ")]
    if len(parts) >= 3:
        return parts[0], " / ".join(parts[1:-1]), parts[-1]
    return (
        said or _labelled(lines, "reason"),
        parts[1] if len(parts) == 2 else _labelled(lines, "evidence"),
        _labelled(lines, "next step"),
    )


def _labelled(lines: list[str], label: str) -> str:
    for line in reversed(lines):
        plain = line.strip(" \t>*_`#-")
        if plain.casefold().startswith(label):
            rest = plain[len(label) :].lstrip(" *_`")
            if rest.startswith(":"):
                return rest[1:].strip(" *_`")[:LONGEST_TEXT]
    return ""
