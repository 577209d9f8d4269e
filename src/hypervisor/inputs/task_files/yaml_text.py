"""Writing a value as YAML on one line, so that every reader of YAML reads that value back."""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import Any

from hypervisor.core.errors import InvalidInput

MOST_LEVELS = 20
LONGEST_KEY = 200
LONGEST_KEPT = 100
# Words and numbers of YAML 1.1 and 1.2 alike: files are read by other programs, too.
WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}
PLAIN = re.compile(r"[\w/](?:[^\[\]{},#?]*[^\[\]{},#?\s:])?\Z")
NUMBER_LIKE = re.compile(r"[-+.]?[0-9][0-9a-fA-FoxXeE_.:+-]*\Z")
ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def normalized(value: Any, levels: int = 0) -> Any:
    """The plain value that will be read back; refuses what YAML and JSON do not both have."""
    if levels > MOST_LEVELS:
        raise InvalidInput(f"a value is nested too deeply: at most {MOST_LEVELS} levels.")
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
        return [normalized(each, levels + 1) for each in value]
    if isinstance(value, dict):
        return {checked_key(key): normalized(each, levels + 1) for key, each in value.items()}
    raise InvalidInput(f"{type(value).__name__} values cannot be written to front matter.")


def normalized_or_date(value: Any) -> Any:
    """A date given as such is written without quotes; all else by its plain value."""
    return value if isinstance(value, date) else normalized(value)


def checked_key(key: Any) -> str:
    if not isinstance(key, str) or not key.strip() or not key.isprintable():
        raise InvalidInput(f"{str(key)[:60]!r} is no name for a field of front matter.")
    if len(key) > LONGEST_KEY:
        raise InvalidInput(f"the field {key[:60]!r}… is longer than {LONGEST_KEY} characters.")
    return key


def equal_values(one: Any, other: Any) -> bool:
    """Equal values of the same kinds: 1, 1.0 and true are three."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is str:  # by far the most
        return bool(one == other)
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return False
        for key, value in one.items():  # noqa: SIM110
            if not equal_values(value, other[key]):
                return False
        return True
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal_values, one, other))
    return bool(one == other)


def to_yaml(value: Any, quote: str | None = None) -> str:
    """YAML of a value on one line; `quote` is the style that texts had before."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        short = len(value) <= LONGEST_KEPT
        return _kept_text(value, quote) if short else _written_text(value, quote)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_yaml(k)}: {to_yaml(v)}" for k, v in value.items()) + "}"
    return "[" + ", ".join(to_yaml(each) for each in value) + "]"


def _written_text(text: str, quote: str | None) -> str:
    return _quoted(text, quote) if quote in ("'", '"') or not is_plain(text) else text


_kept_text = lru_cache(maxsize=1024)(_written_text)  # states and names come again and again


def is_plain(text: str) -> bool:
    """Whether every reader of YAML takes this text, without quotes, for itself."""
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
