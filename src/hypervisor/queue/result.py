"""What a worker says came of an item, as far as it is understood.

A result is any JSON. In an object some members have a meaning: `category` and
`rationale` for the review, `summary`, `commit`, `receipts` (evidence, one line
each), `actions` (proposals that only an approved plan carries out), `edit` (what
is written into the task's own file), and `items` where one task stood for many.
Whatever is not of the expected kind is ignored: a worker's mistake must not stop
the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple


class Edit(NamedTuple):
    """What a worker wants changed in its own task file: fields, unless their owner has changed
    them since, and lines of the body."""

    set: dict[str, Any]
    was: dict[str, Any]
    lines: tuple[str, ...]


NOTHING = Edit({}, {}, ())
LARGEST_RESULT = 1 << 20  # bytes of output that are looked at for a result
MOST_RECEIPTS = 1000
LONGEST_RECEIPT = 20_000
LONGEST_CORRECTION = 10_000
NO_CATEGORY = "(none)"
LONGEST_NAME = 80


def result_in(output: bytes) -> Any:
    """The last line of an output; ValueError if that is no JSON."""
    lines = output.rstrip().rsplit(b"\n", 1)
    try:
        return json.loads(lines[-1], parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ValueError("its last line is no JSON") from None


def _no_number(name: str) -> Any:
    raise ValueError(name)


def receipts_in(result: Any) -> tuple[str, ...]:
    lines = _member(result, "receipts", list) or []
    texts = [line for line in lines if isinstance(line, str) and line.strip("\0 \t\r\n")]
    return tuple(_storable(text[:LONGEST_RECEIPT]) for text in texts[:MOST_RECEIPTS])


def _storable(text: str) -> str:
    """Half a surrogate pair and NUL are in no text that a database would take."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def with_actions(result: Any, actions: list[Any]) -> Any:
    """The result with these among its actions, before its own."""
    if not actions:
        return result
    whole = result if isinstance(result, dict) else {} if result is None else {"result": result}
    own = whole.get("actions")
    own = own if isinstance(own, list) else [] if own is None else [own]
    return {**whole, "actions": [*actions, *own]}


def corrected(result: Any, changes: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The result with some members changed, or removed by None, and what that changed."""
    before = result if isinstance(result, dict) else {}
    kept = {name: value for name, value in before.items() if name not in changes}
    new = {name: value for name, value in changes.items() if value is not None}
    said = ", ".join(f"{k}: {before.get(k)!r} → {v!r}"[:500] for k, v in changes.items())
    return {**kept, **new}, f"corrected {said}"[:LONGEST_CORRECTION]


def category_of(result: Any) -> str:
    """The category in one line, `NO_CATEGORY` if the worker named none."""
    name = " ".join((_member(result, "category", str) or "").split())
    return name[:LONGEST_NAME] or NO_CATEGORY


def text_of(result: Any, member: str) -> str:
    return _member(result, member, str) or ""


def actions_in(result: Any) -> list[dict[str, Any]]:
    return [each for each in _member(result, "actions", list) or [] if isinstance(each, dict)]


def edit_in(result: Any) -> Edit:
    found = _member(result, "edit", dict) or {}
    lines = [each for each in _member(found, "lines", list) or [] if isinstance(each, str)]
    return Edit(
        _member(found, "set", dict) or {},
        _member(found, "was", dict) or {},
        tuple(line for line in lines if line.strip() and line.isprintable()),
    )


def items_in(result: Any) -> Iterator[dict[str, Any]]:
    """The single items that a task for a whole chunk reports."""
    yield from (each for each in _member(result, "items", list) or [] if isinstance(each, dict))


def _member(result: Any, name: str, kind: type) -> Any:
    value = result.get(name) if isinstance(result, dict) else None
    return value if isinstance(value, kind) else None
