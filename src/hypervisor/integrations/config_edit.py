"""Add an entry to the text of a JSON or TOML file that its owner edits, or remove it again.

Only the entry's own characters change. The result is parsed again and must equal the old content
plus or minus the entry; otherwise the edit is refused.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple

BLANK = " \t\r\n"
UNIT = "  "


class Member(NamedTuple):
    """One `"key": value` of an object: where it begins, where its value does, where it ends."""

    key: str
    start: int
    value: int
    end: int


def read_json(text: str) -> dict[str, Any]:
    """The object in the text; InvalidInput if it is not plain JSON."""
    try:
        data = json.loads(text, object_pairs_hook=_unique_names)
    except RecursionError:
        raise InvalidInput("it is nested too deeply") from None
    except ValueError as error:
        comments = "has comments or " if "//" in text or "/*" in text else ""
        raise InvalidInput(f"it {comments}is not valid JSON ({error})") from None
    if not isinstance(data, dict):
        raise InvalidInput("it is not a JSON object")
    return data


def put_json(text: str, path: Sequence[str], value: Any) -> str:
    """The text with `value` at `path`; objects on the way to it are added where missing."""
    if not text.strip():
        return json.dumps(_nested(path, value), indent=UNIT, ensure_ascii=False) + "\n"
    before = read_json(text)
    spot = text.index("{")
    parent: Any = before
    for depth, name in enumerate(path[:-1]):
        if name not in parent:
            new = _put(text, spot, name, _nested(path[depth + 1 :], value))
            return _checked_json(new, _with(before, path, value))
        parent = parent[name]
        if not isinstance(parent, dict):
            raise InvalidInput(f"{name} in it is not an object")
        spot = _member(text, spot, name).value
    return _checked_json(_put(text, spot, path[-1], value), _with(before, path, value))


def drop_json(text: str, path: Sequence[str], also_empty: bool) -> str:
    """The text without the member at `path`; with `also_empty` also without the object around it,
    if that is empty then."""
    before = read_json(text)
    spots = [text.index("{")]
    for name in path[:-1]:
        spots.append(_member(text, spots[-1], name).value)
    if also_empty and len(path) > 1 and len(_members(text, spots[-1])) == 1:
        return _checked_json(_drop(text, spots[-2], path[-2]), _without(before, path[:-1]))
    return _checked_json(_drop(text, spots[-1], path[-1]), _without(before, path))


def at(data: Any, path: Sequence[str]) -> Any:
    """The value at `path`, or None."""
    for name in path:
        if not isinstance(data, dict) or name not in data:
            return None
        data = data[name]
    return data


def read_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"it is not valid TOML ({error})") from None


def put_toml(text: str, path: Sequence[str], value: dict[str, Any]) -> str:
    """The text with a table for `value`: in place of the one there is, else at the end.

    Not by tomlkit: what it adds goes below the comment above the next table, and what it removes
    takes that comment along."""
    newline = _newline(text)
    table = _toml_table(path, value, newline)
    lines = text.splitlines(keepends=True)
    header = f"[{'.'.join(path)}]"
    begin = next((i for i, line in enumerate(lines) if line.strip() == header), None)
    if begin is None:
        gap = "" if not text else newline if text.endswith("\n") else newline * 2
        new = text + gap + table
    else:
        end = begin + 1
        while end < len(lines) and lines[end].strip() and lines[end].lstrip()[0] not in "#[":
            end += 1
        new = "".join(lines[:begin]) + table + "".join(lines[end:])
    return _checked_toml(new, _with(read_toml(text), path, value))


def drop_toml(text: str, path: Sequence[str], value: dict[str, Any], also_empty: bool) -> str:
    """The text without the table, which must be as it was put there."""
    newline = _newline(text)
    head, table, tail = text.partition(_toml_table(path, value, newline))
    if not table:
        raise InvalidInput("its table has changed since it was written")
    if head.endswith(newline * 2) and not tail:
        head = head[: -len(newline)]
    return _checked_toml(head + tail, _without(read_toml(text), path, also_empty))


def _toml_table(path: Sequence[str], value: dict[str, Any], newline: str) -> str:
    pairs = (f"{name} = {json.dumps(item, ensure_ascii=False)}" for name, item in value.items())
    return "".join(line + newline for line in (f"[{'.'.join(path)}]", *pairs))


def entry_line(kind: str, path: Sequence[str], value: dict[str, Any]) -> str:
    """The entry on one line, for people to add it themselves."""
    if kind == "json":
        return json.dumps(_nested(path, value), ensure_ascii=False)
    inner = ", ".join(f"{name} = {json.dumps(item)}" for name, item in value.items())
    return f"{'.'.join(path)} = {{ {inner} }}"


def _put(text: str, spot: int, name: str, value: Any) -> str:
    """Put a member first into the object at `spot`, or change it: no other line is touched."""
    members = _members(text, spot)
    newline = _newline(text)
    old = next((member for member in members if member.key == name), None)
    if old is not None:
        indent = _indent_of_line(text, old.start)
        flat = newline not in text[old.value : old.end] and text[old.value] == "{"
        new = _dumped(value, _unit(text), indent, newline, flat)
        return text[: old.value] + new + text[old.end :]
    if not members:
        outer = _indent_of_line(text, spot)
        inner = outer + _unit(text)
        member = f"{json.dumps(name)}: {_dumped(value, _unit(text), inner, newline, False)}"
        close = text.index("}", spot)
        return text[: spot + 1] + newline + inner + member + newline + outer + text[close:]
    lead = text[spot + 1 : members[0].start]
    flat = "\n" not in lead
    indent = "" if flat else lead.rpartition("\n")[2]
    member = f"{json.dumps(name)}: {_dumped(value, _unit(text), indent, newline, flat)}"
    first = members[0].start
    return text[:first] + member + "," + (lead or " ") + text[first:]


def _drop(text: str, spot: int, name: str) -> str:
    members = _members(text, spot)
    index = next(i for i, member in enumerate(members) if member.key == name)
    old = members[index]
    if index + 1 < len(members):
        return text[: old.start] + text[members[index + 1].start :]
    if index > 0:
        return text[: members[index - 1].end] + text[old.end :]
    return text[: spot + 1] + text[text.index("}", old.end) :]


def _members(text: str, spot: int) -> list[Member]:
    """The members of the object that begins at `spot`, in a text that is known to be JSON."""
    members = []
    decoder = json.JSONDecoder()
    place = _skip(text, spot + 1)
    while text[place] != "}":
        key, after = decoder.raw_decode(text, place)
        value = _skip(text, _skip(text, after) + 1)
        end = decoder.raw_decode(text, value)[1]
        members.append(Member(key, place, value, end))
        place = _skip(text, end)
        if text[place] == ",":
            place = _skip(text, place + 1)
    return members


def _member(text: str, spot: int, name: str) -> Member:
    return next(member for member in _members(text, spot) if member.key == name)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _skip(text: str, place: int) -> int:
    while text[place] in BLANK:
        place += 1
    return place


def _indent_of_line(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    """The indentation of the first member, else the usual one."""
    spot = text.index("{")
    members = _members(text, spot)
    lead = text[spot + 1 : members[0].start] if members else ""
    return lead.rpartition("\n")[2] or UNIT if "\n" in lead else UNIT


def _dumped(value: Any, unit: str, indent: str, newline: str, flat: bool) -> str:
    if flat:
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", newline + indent)


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError("a name appears twice in one object")
    return data


def _nested(path: Sequence[str], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _with(data: Any, path: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    if not isinstance(data, dict):
        raise InvalidInput(f"the parent of {first} is not a table")
    return {**data, first: _with(data.get(first, {}), rest, value) if rest else value}


def _without(data: dict[str, Any], path: Sequence[str], also_empty: bool = False) -> dict[str, Any]:
    first, *rest = path
    inner = _without(data[first], rest) if rest else None
    if inner is None or (also_empty and not inner):
        return {name: item for name, item in data.items() if name != first}
    return {**data, first: inner}


def _checked_json(text: str, expected: dict[str, Any]) -> str:
    return _checked(text, read_json(text), expected)


def _checked_toml(text: str, expected: dict[str, Any]) -> str:
    try:
        return _checked(text, read_toml(text), expected)
    except InvalidInput:
        raise InvalidInput("it is written in a way that cannot be changed safely") from None


def _checked(text: str, actual: dict[str, Any], expected: dict[str, Any]) -> str:
    if actual != expected:
        raise InvalidInput("it is written in a way that cannot be changed safely")
    return text
