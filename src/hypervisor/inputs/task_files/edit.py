"""Changing fields of front matter by splicing its text.

Nodes are used for their positions only: everything but the changed value stays byte for byte. The
result is parsed again, and refused unless exactly the wanted fields changed: an edit that YAML
would read differently never leaves this module.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.task_files.front_matter import (
    BREAK,
    FrontMatter,
    Node,
    loader,
    parse_front_matter,
)
from hypervisor.inputs.task_files.yaml_text import (
    checked_key,
    equal_values,
    normalized,
    normalized_or_date,
    to_yaml,
)

COLON = re.compile(r"[ \t]*:")
LINE_END = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")


class Splice(NamedTuple):
    start: int
    end: int
    text: str


def edit_fields(inner: str, changes: Mapping[str, Any], line_end: str) -> str:
    """The text between the marks with these fields set; None removes a field."""
    front = parse_front_matter(inner)
    wanted = front.fields()
    editor = Editor(front, line_end)
    for key, value in changes.items():
        value = value if value is None else normalized_or_date(value)
        plain = normalized(value)
        if plain is None:
            if checked_key(key) in wanted:
                del wanted[key]
                editor.remove(key)
        elif key not in wanted or not equal_values(wanted[key], plain):
            wanted[checked_key(key)] = plain
            editor.set(key, value)
    if not editor.splices:
        return inner
    after = editor.text()[1:]
    _check(after, wanted, changes)
    return after


def _check(after: str, wanted: dict[str, Any], changes: Mapping[str, Any]) -> None:
    names = ", ".join(list(changes)[:5])
    try:
        fields = parse_front_matter(after).fields()
    except InvalidInput:
        fields = None
    if not equal_values(fields, wanted):
        raise InvalidInput(
            f"{names[:200]}: cannot be changed without changing other fields: the front matter "
            "shares values between them (anchors, `<<`) or is laid out in an unusual way. The "
            "file was not changed; edit it yourself."
        )


class Editor:
    """Collects splices of one front matter."""

    def __init__(self, front: FrontMatter, line_end: str) -> None:
        self.splices: list[Splice] = []
        self._front = front
        self._line_end = line_end
        self._aliases: list[tuple[int, int]] | None = None

    def text(self) -> str:
        text, done, pieces = self._front.text, 0, []
        for start, end, new in sorted(self.splices, key=lambda splice: splice.start):
            pieces += [text[done:start], new]
            done = end
        return "".join([*pieces, text[done:]])

    def set(self, key: str, value: Any) -> None:
        if key not in self._front.pairs:
            self._add(key, value)
            return
        key_node, node = self._front.pairs[key]
        start, end = self._span(key_node, node)
        if self._is_block(node, key_node):
            self._set_block(key_node, node, value, start, end)
            return
        new = to_yaml(value, getattr(node, "style", None))
        before = self._front.text[start - 1]
        self._splice(start, end, new if before in " \t\r\n" else " " + new)

    def remove(self, key: str) -> None:
        if key not in self._front.pairs:  # merged from elsewhere: the check will refuse it
            self._splice(len(self._front.text), len(self._front.text), "")
            return
        key_node, node = self._front.pairs[key]
        start, end = key_node.start_mark.index, self._span(key_node, node)[1]
        if self._root().flow_style:
            start, end = self._with_comma(key, start, end)
        else:
            start, end = self._whole_lines(start, end)
        self._splice(start, end, "")

    def _add(self, key: str, value: Any) -> None:
        text, pair = self._front.text, f"{to_yaml(key)}: {to_yaml(value)}"
        root = self._front.root
        if root is None:
            self._splice(len(text), len(text), pair + self._line_end)
        elif root.flow_style:
            pairs = list(self._front.pairs.values())
            last = self._span(*pairs[-1])[1] if pairs else root.start_mark.index + 1
            self._splice(last, last, (", " if pairs else "") + pair)
        else:
            indent = self._line_start(root.value[0][0].start_mark.index)
            spaces = text[indent : len(text) - len(text[indent:].lstrip(" "))]
            self._splice(len(text), len(text), spaces + pair + self._line_end)

    def _set_block(self, key: Node, node: Node, value: Any, start: int, end: int) -> None:
        """A list keeps one item per line; anything else follows the colon."""
        column = node.start_mark.column
        if node.id == "sequence" and isinstance(value, list) and value:
            between = self._line_end + " " * column
            self._splice(start, end, between.join("- " + to_yaml(item) for item in value))
            return
        colon = COLON.match(self._front.text, key.end_mark.index)
        at = colon.end() if colon else key.end_mark.index
        self._splice(at, at, " " + to_yaml(value))
        self._splice(*self._whole_lines(start, end), "")

    def _is_block(self, node: Node, key: Node) -> bool:
        """Whether the value is a block of lines below its key."""
        return (
            node.id != "scalar"
            and not getattr(node, "flow_style", True)
            and node.start_mark.line > key.end_mark.line
        )

    def _span(self, key: Node, node: Node) -> tuple[int, int]:
        """Where a value is written; the node of an alias has the position of its anchor."""
        if node.start_mark.index >= key.end_mark.index:
            return node.start_mark.index, self._end(node)
        aliases = self._alias_places()
        place = bisect_left(aliases, (key.end_mark.index, 0))
        return aliases[place] if place < len(aliases) else (0, 0)

    def _end(self, node: Node) -> int:
        """Where a value ends; for a block, the parser reports the start of the next token."""
        start, end = int(node.start_mark.index), int(node.end_mark.index)
        if node.id != "scalar" and not getattr(node, "flow_style", True):
            end = max(self._ends_of_last(node))
        return max(start, len(self._front.text[:end].rstrip(" \t\r\n")))

    def _ends_of_last(self, node: Node) -> list[int]:
        start, end = node.start_mark.index, node.end_mark.index
        last = node.value[-1:] if node.id == "sequence" else [*sum(node.value[-1:], ())]
        ends = [self._end(child) for child in last if child.start_mark.index > start]
        ends += [stop for begin, stop in self._alias_places() if start <= begin < end]
        return [*ends, start]

    def _alias_places(self) -> list[tuple[int, int]]:
        if self._aliases is None:
            self._aliases = []
            if "*" in self._front.text:
                from yaml import AliasToken, scan

                self._aliases = [
                    (token.start_mark.index, token.end_mark.index)
                    for token in scan(self._front.text, Loader=loader())
                    if isinstance(token, AliasToken)
                ]
        return self._aliases

    def _with_comma(self, key: str, start: int, end: int) -> tuple[int, int]:
        pairs = list(self._front.pairs)
        place = pairs.index(key)
        if place + 1 < len(pairs):
            return start, self._front.pairs[pairs[place + 1]][0].start_mark.index
        if place:
            start = self._span(*self._front.pairs[pairs[place - 1]])[1]
        return start, end

    def _whole_lines(self, start: int, end: int) -> tuple[int, int]:
        match = LINE_END.match(self._front.text, end)
        assert match is not None
        return self._line_start(start), match.end()

    def _line_start(self, index: int) -> int:
        breaks = [match.end() for match in BREAK.finditer(self._front.text, 0, index)]
        return breaks[-1] if breaks else 0

    def _root(self) -> Node:
        assert self._front.root is not None
        return self._front.root

    def _splice(self, start: int, end: int, text: str) -> None:
        self.splices.append(Splice(start, end, text))
