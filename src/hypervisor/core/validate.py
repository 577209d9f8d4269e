"""What a value must be before it may enter the store. Each check returns it or raises."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from hypervisor.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_NAME = 200
LONGEST_TITLE = 2_000
LONGEST_KEY = 8_192
LONGEST_TEXT = 4_000_000
MOST_NAMES = 100
MOST_LEVELS = 100
FEW, SHORT, LARGE = 10, 10_000, 10**18  # all of it as JSON is far from the longest text


def text(what: str, value: object, longest: int = LONGEST_TEXT, empty: bool = True) -> str:
    """Any Unicode text without NUL, up to a length."""
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be text, not {type(value).__name__}.")
    if not empty and not value.strip():
        raise InvalidInput(f"{what} is empty.")
    if len(value) > longest:
        raise InvalidInput(f"{what} is too long: {len(value):,} characters, at most {longest:,}.")
    if "\0" in value:
        raise InvalidInput(f"{what} contains a NUL character.")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInput(f"{what} is not valid Unicode text: {value[:60]!r}.") from None
    return value


def title(value: object) -> str:
    """A title: not empty; line breaks and control characters are for the body."""
    return text("the title", value, LONGEST_TITLE, empty=False)


def name(what: str, value: object, empty: bool = False) -> str:
    """A short name without white space or control characters (type, worker, capability …)."""
    value = text(what, value, LONGEST_NAME, empty)
    if " " in value or not value.isprintable():  # no other white space is printable
        raise InvalidInput(f"{what} {value[:60]!r} must not contain spaces or control characters.")
    return value


def label(what: str, value: object) -> str:
    """A name people choose for a batch: may contain spaces, but no control characters."""
    value = text(what, value, LONGEST_NAME, empty=False)
    if not value.isprintable():
        raise InvalidInput(f"{what} {value[:60]!r} must not contain control characters.")
    return value


def names(what: str, values: object) -> tuple[str, ...]:
    """A set of names, sorted, without repeats."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InvalidInput(f"{what} must be a list of names.")
    found = sorted({name(f"{what}:", value) for value in values})
    if len(found) > MOST_NAMES:
        raise InvalidInput(f"{what}: {len(found)} names, at most {MOST_NAMES}.")
    return tuple(found)


def keys(what: str, values: object, most: int = MOST_NAMES) -> tuple[str, ...]:
    """A set of free texts, such as paths, that stand for something to be held exclusively."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InvalidInput(f"{what} must be a list.")
    found = sorted({text(f"{what}:", value, 1_000, empty=False) for value in values})
    if len(found) > most:
        raise InvalidInput(f"{what}: {len(found)} entries, at most {most}.")
    return tuple(found)


def number(what: str, value: object, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(f"{what} must be a whole number.")
    if not low <= value <= high:
        raise InvalidInput(f"{what} must be between {low:,} and {high:,}, not {value:,}.")
    return value


def json_value(what: str, value: Any) -> Any:
    """Anything JSON can hold, up to a size."""
    if value is None or _is_small(value):
        return value
    try:
        size = len(_encoder()(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} cannot be kept as JSON: {error}.") from None
    if size > LONGEST_TEXT:
        raise InvalidInput(f"{what} is too large: {size:,} characters, at most {LONGEST_TEXT:,}.")
    _refuse_deep(what, value)
    return value


def _is_small(value: Any) -> bool:
    """Whether it is, like most, a few short texts and numbers; then there is nothing to refuse."""
    if type(value) is not dict or len(value) > FEW:
        return False
    for key, each in value.items():
        if type(each) is int:
            if not -LARGE < each < LARGE:
                return False
        elif type(each) is not str or len(each) > SHORT:
            return False
        if type(key) is not str or len(key) > SHORT:
            return False
    return True


@cache
def _encoder() -> Callable[[Any], str]:
    from json import JSONEncoder  # most commands need none

    return JSONEncoder(allow_nan=False).encode


def _refuse_deep(what: str, value: Any) -> None:
    """Deep JSON can be written but no longer be read back, depending on who reads."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        containers = [each for each in level if isinstance(each, (dict, list, tuple))]
        if not containers:
            return
        level = [
            inner
            for each in containers
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    raise InvalidInput(f"{what} is nested too deeply: at most {MOST_LEVELS} levels.")
