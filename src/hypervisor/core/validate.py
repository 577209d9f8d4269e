"""Checks of values before they are stored. Each returns the value or raises InvalidInput."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from hypervisor.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_NAME_LENGTH = 200
MAX_TITLE_LENGTH = 2_000
MAX_KEY_LENGTH = 8_192
MAX_TEXT_LENGTH = 4_000_000
MAX_NAMES = 100
MAX_LEVELS = 100
FEW, SHORT, LARGE = 10, 10_000, 10**18  # JSON within these limits is far below MAX_TEXT_LENGTH


def text(field: str, value: object, limit: int = MAX_TEXT_LENGTH, empty: bool = True) -> str:
    """Any Unicode text without NUL, up to a length."""
    if not isinstance(value, str):
        raise InvalidInput(f"{field} must be text, not {type(value).__name__}.")
    if not empty and not value.strip():
        raise InvalidInput(f"{field} is empty.")
    if len(value) > limit:
        raise InvalidInput(f"{field} is too long: {len(value):,} characters (maximum {limit:,}).")
    if "\0" in value:
        raise InvalidInput(f"{field} contains a NUL character.")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInput(f"{field} is not valid Unicode text: {value[:60]!r}.") from None
    return value


def title(value: object) -> str:
    """A title, which must not be empty."""
    return text("the title", value, MAX_TITLE_LENGTH, empty=False)


def name(field: str, value: object, empty: bool = False) -> str:
    """A short name without white space or control characters (type, worker, capability …)."""
    value = text(field, value, MAX_NAME_LENGTH, empty)
    if " " in value or not value.isprintable():  # no other white space is printable
        raise InvalidInput(f"{field} {value[:60]!r} must not contain spaces or control characters.")
    return value


def label(field: str, value: object) -> str:
    """A name people choose for a batch: may contain spaces, but no control characters."""
    value = text(field, value, MAX_NAME_LENGTH, empty=False)
    if not value.isprintable():
        raise InvalidInput(f"{field} {value[:60]!r} must not contain control characters.")
    return value


def names(field: str, values: object) -> tuple[str, ...]:
    """Names, sorted and without duplicates."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InvalidInput(f"{field} must be a list of names.")
    unique = sorted({name(f"{field}:", value) for value in values})
    if len(unique) > MAX_NAMES:
        raise InvalidInput(f"{field}: {len(unique)} names (maximum {MAX_NAMES}).")
    return tuple(unique)


def keys(field: str, values: object, max_count: int = MAX_NAMES) -> tuple[str, ...]:
    """Texts such as paths, sorted and without duplicates."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InvalidInput(f"{field} must be a list.")
    unique = sorted({text(f"{field}:", value, 1_000, empty=False) for value in values})
    if len(unique) > max_count:
        raise InvalidInput(f"{field}: {len(unique)} entries (maximum {max_count}).")
    return tuple(unique)


def number(field: str, value: object, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(f"{field} must be a whole number.")
    if not low <= value <= high:
        raise InvalidInput(f"{field} must be between {low:,} and {high:,}, not {value:,}.")
    return value


def json_value(field: str, value: Any) -> Any:
    """Anything JSON can hold, up to a size."""
    if value is None or _is_small(value):
        return value
    try:
        size = len(_encoder()(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{field} cannot be kept as JSON: {error}.") from None
    if size > MAX_TEXT_LENGTH:
        raise InvalidInput(
            f"{field} is too large: {size:,} characters (maximum {MAX_TEXT_LENGTH:,})."
        )
    _refuse_deep(field, value)
    return value


def _is_small(value: Any) -> bool:
    """Whether it is a few short texts and numbers, as most are, which need no further check."""
    if type(value) is not dict or len(value) > FEW:
        return False
    for key, item in value.items():
        if type(item) is int:
            if not -LARGE < item < LARGE:
                return False
        elif type(item) is not str or len(item) > SHORT:
            return False
        if type(key) is not str or len(key) > SHORT:
            return False
    return True


@cache
def _encoder() -> Callable[[Any], str]:
    from json import JSONEncoder  # most commands need none

    return JSONEncoder(allow_nan=False).encode


def _refuse_deep(field: str, value: Any) -> None:
    """Deeply nested JSON can be written, but some parsers cannot read it back."""
    level = [value]
    for _ in range(MAX_LEVELS + 1):
        containers = [node for node in level if isinstance(node, (dict, list, tuple))]
        if not containers:
            return
        level = [
            inner
            for node in containers
            for inner in (node.values() if isinstance(node, dict) else node)
        ]
    raise InvalidInput(f"{field} is nested too deeply (maximum {MAX_LEVELS} levels).")
