"""Writes a value as YAML on one line that every YAML parser reads back as the same value."""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import Any

from hypervisor.core.errors import InvalidInput

MAX_LEVELS = 20
MAX_KEY_LENGTH = 200
MAX_KEPT_LENGTH = 100
# Words and numbers of both YAML 1.1 and 1.2: other programs read the files, too.
WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}
PLAIN = re.compile(r"[\w/](?:[^\[\]{},#?]*[^\[\]{},#?\s:])?\Z")
NUMBER_LIKE = re.compile(r"[-+.]?[0-9][0-9a-fA-FoxXeE_.:+-]*\Z")
ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def normalized(value: Any, levels: int = 0) -> Any:
    """The plain value that will be read back; refuses values that YAML and JSON do not share."""
    if levels > MAX_LEVELS:
        raise InvalidInput(f"a value is nested too deeply (maximum {MAX_LEVELS} levels).")
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if value - value != 0:
            raise InvalidInput(f"{value} cannot be written to front matter.")
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [normalized(item, levels + 1) for item in value]
    if isinstance(value, dict):
        return {checked_key(key): normalized(item, levels + 1) for key, item in value.items()}
    raise InvalidInput(f"{type(value).__name__} values cannot be written to front matter.")


def normalized_or_date(value: Any) -> Any:
    """A date as it is, which is written without quotes; otherwise the plain value."""
    return value if isinstance(value, date) else normalized(value)


def checked_key(key: Any) -> str:
    if not isinstance(key, str) or not key.strip() or not key.isprintable():
        raise InvalidInput(f"{str(key)[:60]!r} is not a valid name for a front matter field.")
    if len(key) > MAX_KEY_LENGTH:
        raise InvalidInput(f"the field {key[:60]!r}… is longer than {MAX_KEY_LENGTH} characters.")
    return key


def equal_values(left: Any, right: Any) -> bool:
    """Whether values and types are equal: 1, 1.0 and true differ."""
    kind = type(left)
    if kind is not type(right):
        return False
    if kind is str:  # by far the most
        return bool(left == right)
    if isinstance(left, dict):
        if left.keys() != right.keys():
            return False
        for key, value in left.items():  # noqa: SIM110
            if not equal_values(value, right[key]):
                return False
        return True
    if isinstance(left, list):
        return len(left) == len(right) and all(map(equal_values, left, right))
    return bool(left == right)


def to_yaml(value: Any, quote: str | None = None) -> str:
    """YAML of a value on one line; `quote` is the previous style of a text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        short = len(value) <= MAX_KEPT_LENGTH
        return _cached_text(value, quote) if short else _written_text(value, quote)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_yaml(k)}: {to_yaml(v)}" for k, v in value.items()) + "}"
    return "[" + ", ".join(to_yaml(item) for item in value) + "]"


def _written_text(text: str, quote: str | None) -> str:
    return _quoted(text, quote) if quote in ("'", '"') or not is_plain(text) else text


_cached_text = lru_cache(maxsize=1024)(_written_text)  # states and names recur


def is_plain(text: str) -> bool:
    """Whether every YAML parser reads this text, without quotes, as the same text."""
    if not text.isprintable() or not PLAIN.match(text) or ": " in text or text.endswith(":"):
        return False
    if text.lower() in WORDS or NUMBER_LIKE.match(text):
        return False
    from yaml import SafeLoader

    resolvers = SafeLoader.yaml_implicit_resolvers.get(text[0], [])
    return not any(pattern.match(text) for _, pattern in resolvers)


def _float(value: float) -> str:
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    if e and "." not in mantissa:
        mantissa += ".0"
    sign = "" if not e or exponent.startswith("-") else "+"
    return mantissa + e + sign + exponent.removeprefix("+")


def _quoted(text: str, quote: str | None) -> str:
    if quote != '"' and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(c: str) -> str:
    if c in ESCAPES:
        return ESCAPES[c]
    if c.isprintable():
        return c
    code = ord(c)
    return (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{value[:60]!r} is not valid Unicode text.") from None
    return value
