"""Read fields of untrusted JSON: a value of the wrong type counts as missing."""

from __future__ import annotations

import json
from typing import Any

MAX_LINE_LENGTH = 16 << 20  # characters; a longer line is not parsed
MAX_COUNT = 1 << 50

Object = dict[str, Any]


def parse_object(line: str) -> Object | None:
    """The JSON object on a line, or None."""
    line = line.strip()
    if not line.startswith("{") or len(line) > MAX_LINE_LENGTH:
        return None
    try:
        value = json.loads(line, parse_constant=_reject)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _reject(name: str) -> Any:
    raise ValueError(name)  # NaN and Infinity are not JSON, and no store takes them


def get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def member(value: Any, *path: str) -> Object:
    """The object at a path, or {}."""
    for name in path:
        value = get(value, name)
    return value if isinstance(value, dict) else {}


def items(value: Any, name: str) -> list[Object]:
    """The objects in a list."""
    values = get(value, name)
    return [item for item in values if isinstance(item, dict)] if isinstance(values, list) else []


def text(value: Any, name: str) -> str:
    field = get(value, name)
    return field if isinstance(field, str) else ""


def amount(value: Any, name: str) -> float | None:
    field = get(value, name)
    if isinstance(field, bool) or not isinstance(field, (int, float)):
        return None
    return float(field) if 0 <= field < MAX_COUNT else None  # NaN is neither


def count(value: Any, name: str) -> int:
    return int(amount(value, name) or 0)
