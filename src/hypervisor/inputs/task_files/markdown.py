"""Markdown task files: fields in front matter, a body, receipts at its end.

Bytes in, bytes out; no I/O. Everything that an edit does not concern stays byte for byte: comments,
order, quotes, anchors, line ends, a byte order mark. An edit that changes nothing returns the same
bytes. A file that cannot be parsed is refused, never repaired.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.task_files.front_matter import (
    BOM,
    decode_utf8,
    find_front_matter,
    parse_front_matter,
)
from hypervisor.inputs.task_files.receipts_section import (
    line_end,
    receipt_line,
    receipt_problems,
    section_start,
    with_receipts,
)

__all__ = [
    "Document",
    "parse",
    "receipt_line",
    "receipt_problems",
    "with_body_line",
    "with_fields",
    "with_receipts",
]


class Document(NamedTuple):
    """`fields` are plain values: what JSON can hold, dates as ISO text."""

    fields: dict[str, Any]
    body: str
    has_front: bool


def parse(data: bytes) -> Document:
    """Parse a task file; an error in its front matter names the line."""
    place = find_front_matter(data)
    decode_utf8(data)
    if place is None:
        return Document({}, decode_utf8(data.removeprefix(BOM)), False)
    inner = decode_utf8(data[place.start : place.end])
    return Document(parse_front_matter(inner).fields(), decode_utf8(data[place.body :]), True)


def with_fields(data: bytes, changes: Mapping[str, Any]) -> bytes:
    """The file with these fields set; None removes one. A file without front matter gets one."""
    from hypervisor.inputs.task_files.edit import edit_fields

    place = find_front_matter(data)
    decode_utf8(data)
    if place is None:
        return _with_new_front(data, changes)
    inner = decode_utf8(data[place.start : place.end])
    changed = edit_fields(inner, changes, line_end(data, place.end).decode())
    if changed == inner:
        return data
    return data[: place.start] + changed.encode() + data[place.end :]


def with_body_line(data: bytes, line: str) -> bytes:
    """The file with `line` as a paragraph at the end of the body, above the receipts, unless the
    body already contains it."""
    if not line.strip() or len(line.splitlines()) != 1:
        raise InvalidInput("exactly one line of text can be added to the body.")
    place = find_front_matter(data)
    start = place.body if place else len(BOM) if data.startswith(BOM) else 0
    receipts = section_start(data)
    stop = len(data) if receipts is None else receipts
    text = line.strip().encode()
    if text in data[start:stop]:
        return data
    end = line_end(data)
    before, after = data[:stop], data[stop:]
    if before.removeprefix(BOM) and before[-1:] not in b"\r\n":
        before += end
    above = before[start:].splitlines()
    gap = end if above and above[-1].strip() else b""
    return before + gap + text + end + (end if after else b"") + after


def _with_new_front(data: bytes, changes: Mapping[str, Any]) -> bytes:
    from hypervisor.inputs.task_files.edit import edit_fields

    end = line_end(data)
    inner = edit_fields("", changes, end.decode())
    if not inner:
        return data
    mark = BOM if data.startswith(BOM) else b""
    fence = b"---" + end
    return mark + fence + inner.encode() + fence + data[len(mark) :]
