"""Front matter that is nothing but lines of `key: value`: read and changed without YAML.

Most of it is, and a parser for all of YAML takes ten times as long to say so. Whatever is not
surely simple is left to YAML: the answer is None then, and the caller goes the general way.
What is taken here, YAML reads to the same values (`tests/domain/test_plainfront.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from hypervisor.domain.yaml_text import normal, normal_or_date, same, written

KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}\Z")
SIMPLE = re.compile(r"[\w/(](?:[^#:]|:(?=\S))*\Z")
IN_LIST = re.compile(r"[\w/][\w./ -]*\Z")
WHOLE = re.compile(r"(?:0|[1-9][0-9]{0,17})\Z")
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
# What a number or a moment of YAML is made of: one other character, and it is a text.
LIKE_NUMBERS = re.compile(r"[0-9a-fA-FxXoO_.:+TtZz -]*\Z")
WORDS = frozenset(("yes", "no", "on", "off", "true", "false", "null"))
DIGITS = frozenset("0123456789")
LONGEST_KEPT = 200


class Unusual(Exception):
    """It takes YAML to read this."""


class Line(NamedTuple):
    """A field, and where its value is in the line; `quote` is how that is written. A value at
    -1 is missing, and could be put in several places."""

    key: str
    value: Any
    start: int
    end: int
    quote: str | None


class PlainFront(NamedTuple):
    values: dict[str, Any]
    lines: dict[str, tuple[int, int, Line]]  # with the offsets of the whole line


@lru_cache(maxsize=4)
def plain_front(inner: str) -> PlainFront | None:
    """The text between the marks, if it is that simple. Its values belong to all callers."""
    front = PlainFront({}, {})
    if not inner.endswith("\n"):
        return None if inner else front
    start = 0
    for text in inner[:-1].split("\n"):
        end = start + len(text) + 1
        try:
            line = _kept_line(text) if len(text) <= LONGEST_KEPT else _line(text)
        except Unusual:
            return None
        if line is not None:
            key, value = line[0], line[1]
            if key in front.values:
                return None
            front.values[key] = value[:] if isinstance(value, list) else value
            front.lines[key] = start, end, line
        start = end
    return front


def edited(inner: str, changes: Mapping[str, Any], line_end: str) -> str | None:
    """The text with these fields set, None removes one; None if that takes YAML."""
    front = plain_front(inner)
    if front is None:
        return None
    wanted = dict(front.values)
    splices: list[tuple[int, int, str]] = []
    for key, value in changes.items():
        if not KEY.match(str(key)):
            return None
        value = value if value is None else normal_or_date(value)
        plain = normal(value)
        if plain is None:
            if key in wanted:
                del wanted[key]
                splices.append((*front.lines[key][:2], ""))
        elif key not in wanted:
            wanted[key] = plain
            splices.append((len(inner), len(inner), f"{written(key)}: {written(value)}{line_end}"))
        elif not same(wanted[key], plain):
            wanted[key] = plain
            start, _, line = front.lines[key]
            if line.start < 0:
                return None
            new = written(value, line.quote)
            gap = " " if line.start == line.end else ""  # nothing is behind the colon yet
            splices.append((start + line.start, start + line.end, gap + new))
    return _checked(_spliced(inner, splices), wanted) if splices else inner


def _checked(after: str, wanted: dict[str, Any]) -> str | None:
    found = plain_front(after)
    return after if found is not None and same(found.values, wanted) else None


def _spliced(text: str, splices: list[tuple[int, int, str]]) -> str:
    pieces, done = [], 0
    for start, end, new in sorted(splices, key=lambda splice: splice[0]):
        pieces += [text[done:start], new]
        done = end
    return "".join([*pieces, text[done:]])


def _line(text: str) -> Line | None:
    """What a line says; None for a comment, and for nothing."""
    text = text.removesuffix("\r")
    if not text.isprintable():
        raise Unusual
    if not text or text[0] == "#":
        return None
    key, colon, rest = text.partition(":")
    if not colon or not KEY.match(key):
        raise Unusual
    value = rest.strip(" ")
    if not value:
        at = -1 if rest else len(text)
        return Line(key, None, at, at, None)
    if rest[0] != " ":
        raise Unusual
    at = len(text) - len(rest.lstrip(" "))
    quote = value[0] if value[0] in "\"'" else None
    read = _list(value) if value[0] == "[" else _scalar(value)
    return Line(key, read, at, at + len(value), quote)


_kept_line = lru_cache(maxsize=4096)(_line)  # most lines come again: in the next file, or edited


def _list(text: str) -> list[Any]:
    if text[-1] != "]":
        raise Unusual
    inside = text[1:-1].strip(" ")
    return [_item(each.strip(" ")) for each in inside.split(",")] if inside else []


def _item(text: str) -> Any:
    if not text or (text[0] not in "\"'" and not IN_LIST.match(text)):
        raise Unusual
    return _scalar(text)


def _scalar(text: str) -> Any:
    first = text[0]
    if first in "\"'":
        inside = text[1:-1]
        if len(text) < 2 or text[-1] != first or first in inside or "\\" in inside:
            raise Unusual
        return inside
    if not SIMPLE.match(text) or text.lower() in WORDS:
        raise Unusual
    if first in DIGITS and LIKE_NUMBERS.match(text):
        return _number_or_day(text)
    return text


def _number_or_day(text: str) -> Any:
    if WHOLE.match(text):
        return int(text)
    if DAY.match(text):  # valid or not: a day is kept as its text
        return text
    raise Unusual
