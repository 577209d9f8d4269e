"""Results of workers: the members that have a meaning.

A result is any JSON. In an object some members have a meaning: `category` and
`rationale` for the review, `summary`, `commit`, `receipts` (evidence, one line
each), `actions` (proposals that only an approved plan carries out), `edit`
(changes to the task's own file), and `items` if one task stands for many.
Members of an unexpected type are ignored: a worker's mistake must not stop the
queue.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypervisor.core.records import NamedTuple


class Edit(NamedTuple):
    """Changes that a worker asks for in its own task file: fields, unless their owner has changed
    them since, and lines of the body."""

    set: dict[str, Any]
    was: dict[str, Any]
    lines: tuple[str, ...]


NOTHING = Edit({}, {}, ())
MAX_RESULT_SIZE = 1 << 20  # bytes of output that are searched for a result
MAX_RECEIPTS = 1000
MAX_RECEIPT_LENGTH = 20_000
MAX_CORRECTION_LENGTH = 10_000
NO_CATEGORY = "(none)"
MAX_NAME_LENGTH = 80


def result_in(output: bytes) -> Any:
    """The last line of an output, parsed; ValueError if it is not JSON."""
    lines = output.rstrip().rsplit(b"\n", 1)
    try:
        return json.loads(lines[-1], parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ValueError("the last line is not valid JSON") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def receipts_in(result: Any) -> tuple[str, ...]:
    lines = _member(result, "receipts", list) or []
    texts = [line for line in lines if isinstance(line, str) and line.strip("\0 \t\r\n")]
    return tuple(_storable(text[:MAX_RECEIPT_LENGTH]) for text in texts[:MAX_RECEIPTS])


def _storable(text: str) -> str:
    """The text without NUL and lone surrogates, which databases refuse."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def with_actions(result: Any, actions: list[Any]) -> Any:
    """The result with these actions before its own."""
    if not actions:
        return result
    whole = result if isinstance(result, dict) else {} if result is None else {"result": result}
    own = whole.get("actions")
    own = own if isinstance(own, list) else [] if own is None else [own]
    return {**whole, "actions": [*actions, *own]}


def corrected(result: Any, changes: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The result with some members changed, or removed if None, and a description of that."""
    before = result if isinstance(result, dict) else {}
    kept = {name: value for name, value in before.items() if name not in changes}
    if isinstance(kept.get("actions"), list):
        actions = [_corrected_action(action, changes) for action in kept["actions"]]
        kept["actions"] = [action for action in actions if action is not None]
    new = {name: value for name, value in changes.items() if value is not None}
    described = ", ".join(f"{k}: {before.get(k)!r} → {v!r}"[:500] for k, v in changes.items())
    return {**kept, **new}, f"corrected {described}"[:MAX_CORRECTION_LENGTH]


def _corrected_action(action: Any, changes: dict[str, Any]) -> Any:
    """A proposed edit with the same corrections; None if nothing is left of it."""
    fields = _member(action, "set", dict)
    if not fields or action.get("do") != "edit" or not fields.keys() & changes.keys():
        return action
    new = {name: changes.get(name, value) for name, value in fields.items()}
    new = {name: value for name, value in new.items() if name not in changes or value is not None}
    kept = {name: value for name, value in action.items() if name != "set"}
    if new:
        return {**kept, "set": new}
    return kept if kept.get("lines") else None


def category_of(result: Any) -> str:
    """The category in one line, `NO_CATEGORY` if there is none."""
    name = " ".join((_member(result, "category", str) or "").split())
    return name[:MAX_NAME_LENGTH] or NO_CATEGORY


def text_of(result: Any, member: str) -> str:
    return _member(result, member, str) or ""


def actions_in(result: Any) -> list[dict[str, Any]]:
    return [action for action in _member(result, "actions", list) or [] if isinstance(action, dict)]


def edit_in(result: Any) -> Edit:
    edit = _member(result, "edit", dict) or {}
    lines = [line for line in _member(edit, "lines", list) or [] if isinstance(line, str)]
    return Edit(
        _member(edit, "set", dict) or {},
        _member(edit, "was", dict) or {},
        tuple(line for line in lines if line.strip() and line.isprintable()),
    )


def items_in(result: Any) -> Iterator[dict[str, Any]]:
    """The items in the result of a task for a whole chunk."""
    yield from (item for item in _member(result, "items", list) or [] if isinstance(item, dict))


def _member(result: Any, name: str, kind: type) -> Any:
    value = result.get(name) if isinstance(result, dict) else None
    return value if isinstance(value, kind) else None
