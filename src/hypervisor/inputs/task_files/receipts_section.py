"""Receipts as lines of a task file, under one heading of its body.

A line is a shortened copy of a receipt in the store, which stays the truth; the number and
the hash at its end say of which. Whatever text a receipt has, it stays on its line and
cannot look like another. Lines are bytes here, so that the rest of a file need not even be
text. What people wrote around the lines is left where it is.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from hypervisor.inputs.task_files.front_matter import find_front_matter
from hypervisor.queue.receipt import Receipt

HEADING = b"## Receipts"
HASH_SHOWN = 12
LONGEST_TEXT = 500
LONGEST_ACTOR = 60
HEADING_LINE = re.compile(rb"(?:(?<=[\r\n])|\A)## Receipts[ \t]*(?=[\r\n]|\Z)")
OTHER_HEADING = re.compile(rb"(?<=[\r\n])#{1,2}[ \t]")
RECEIPT_LINE = re.compile(rb"- .* #(\d{1,18}) ([0-9a-f]{12})[ \t]*\Z", re.DOTALL)
FENCE = re.compile(rb"(?:(?<=[\r\n])|\A) {0,3}(```+|~~~+)")
LINE_END = re.compile(rb"\r\n|\n|\r")
TAG = re.compile(r"<(?=[A-Za-z/!?])")


class Line(NamedTuple):
    """A line with a receipt's number and hash: offsets without its line end."""

    start: int
    end: int
    number: int
    mark: str
    text: bytes


def receipt_line(receipt: Receipt) -> str:
    """`- 2026-11-16 04:12:09 · worker-17 · archived: … · #12 9f3a2c41d0aa`, in UTC."""
    name = receipt.actor.partition("@")[0] or receipt.actor  # the store knows host and process
    actor = _harmless(name, LONGEST_ACTOR)
    text = _harmless(receipt.text, LONGEST_TEXT)
    mark = f"#{receipt.number} {receipt.hash[:HASH_SHOWN]}"
    return f"- {_moment(receipt.at)} · {actor} · {text} · {mark}"


def with_receipts(data: bytes, receipts: Sequence[Receipt]) -> bytes:
    """The file with every one of these receipts, in their order; what is there already stays."""
    data = _without_torn_line(data, receipts)
    start = section_start(data)
    present = {} if start is None else {line.mark: line for line in _lines(data, start)}
    missing = [each for each in receipts if each.hash[:HASH_SHOWN] not in present]
    if not missing:
        return data
    if start is None:
        return _with_section(data, missing)
    places: dict[int, list[Receipt]] = {}
    for place, receipt in _placed(data, start, receipts, present):
        places.setdefault(place, []).append(receipt)
    for place in sorted(places, reverse=True):
        data = _inserted(data, place, places[place])
    return data


def receipt_problems(
    data: bytes, receipts: Sequence[Receipt], others: Sequence[Receipt] = ()
) -> list[str]:
    """What was edited, removed, repeated, moved or added by somebody else; empty if nothing.

    `others` may be there, too: what earlier tasks about the same file have left."""
    start = section_start(data)
    lines = [] if start is None else _lines(data, start)
    order = {each.hash[:HASH_SHOWN]: place for place, each in enumerate(receipts)}
    known = {each.hash[:HASH_SHOWN]: each for each in (*receipts, *others)}
    problems, seen, last = [], set[str](), -1
    line_number, counted_to = 1, 0
    for line in lines:
        line_number += len(LINE_END.findall(data, counted_to, line.start))
        counted_to, where = line.start, f"line {line_number}"
        name = f"#{line.number} {line.mark}"
        if line.mark not in known:
            problems.append(f"{where}: {name} is not in the store: edited, or not from here")
        elif line.mark in seen:
            problems.append(f"{where}: {name} is there twice")
        elif line.text != receipt_line(known[line.mark]).encode():
            problems.append(f"{where}: {name} was edited")
        elif order.get(line.mark, last) < last:
            problems.append(f"{where}: {name} was moved")
        seen.add(line.mark)
        last = max(last, order.get(line.mark, -1))
    gone = [each for each in receipts if each.hash[:HASH_SHOWN] not in seen]
    return problems + [f"#{r.number} {r.hash[:HASH_SHOWN]} is missing" for r in gone]


def section_start(data: bytes) -> int | None:
    """Where the first heading of receipts begins that is not an example in a code block."""
    place = find_front_matter(data)
    if HEADING not in data:
        return None
    body = 0 if place is None else place.body
    headings = [found.start() for found in HEADING_LINE.finditer(data, body)]
    if not headings:
        return None
    ends = [(end, begin) for begin, end in _code_blocks(data, body)]
    for heading in headings:
        next_block = bisect_right(ends, (heading, len(data)))
        if next_block == len(ends) or heading < ends[next_block][1]:
            return heading
    return None


def _code_blocks(data: bytes, start: int) -> list[tuple[int, int]]:
    """Closed ones only: an open one would hide whatever is appended from then on."""
    blocks, opened = [], None
    for found in FENCE.finditer(data, start):
        fence = found.group(1)
        if opened is None:
            opened = found
        elif fence.startswith(opened.group(1)):
            blocks.append((opened.start(), found.start()))
            opened = None
    return blocks


def _lines(data: bytes, start: int) -> list[Line]:
    lines, position = [], start
    for text in data[start:].splitlines(keepends=True):
        found = RECEIPT_LINE.match(text.rstrip(b"\r\n")) if text.startswith(b"- ") else None
        if found:
            end = position + len(text.rstrip(b"\r\n"))
            number, mark = int(found.group(1)), found.group(2).decode()
            lines.append(Line(position, end, number, mark, data[position:end]))
        position += len(text)
    return lines


def _without_torn_line(data: bytes, receipts: Sequence[Receipt]) -> bytes:
    """A power cut may leave the beginning of a line at the end of the file, or zeros: the store
    has all of it, so they go."""
    whole = data.rstrip(b"\0")
    if whole.endswith(b"\r") and line_end(data) == b"\r\n":
        whole = whole[:-1]
    begun = whole[max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1 :]
    if (not begun and whole == data) or section_start(data) is None:
        return data
    if begun and not any(receipt_line(each).encode().startswith(begun) for each in receipts):
        return data
    return whole[: len(whole) - len(begun)]


def _with_section(data: bytes, receipts: Sequence[Receipt]) -> bytes:
    end = line_end(data)
    if data and data[-1:] not in b"\r\n":
        data += end
    gap = b"" if not data or data.endswith(end * 2) else end
    return data + gap + HEADING + end + end + b"".join(_texts(receipts, end))


def _placed(
    data: bytes, start: int, receipts: Sequence[Receipt], present: dict[str, Line]
) -> list[tuple[int, Receipt]]:
    """Where each missing receipt belongs: behind the one before it, or at the section's end."""
    placed: list[tuple[int, Receipt]] = []
    lines = [present.get(each.hash[:HASH_SHOWN]) for each in receipts]
    last = max((n for n, line in enumerate(lines) if line), default=-1)
    end = _section_end(data, start, present)
    before = None
    for n, (receipt, line) in enumerate(zip(receipts, lines, strict=True)):
        if line:
            before = line
        elif n > last:
            placed.append((end, receipt))
        elif before:
            placed.append((_next_line(data, before.end), receipt))
        else:
            first = next(each for each in lines if each)
            placed.append((first.start, receipt))
    return placed


def _section_end(data: bytes, start: int, present: dict[str, Line]) -> int:
    """The end of the file, unless a person wrote another section below."""
    if not OTHER_HEADING.search(data, start + 1):
        return len(data)
    if present:
        return _next_line(data, max(line.end for line in present.values()))
    place = _next_line(data, start)
    gap = LINE_END.match(data, place)
    return gap.end() if gap else place


def _next_line(data: bytes, start: int) -> int:
    found = LINE_END.search(data, start)
    return found.end() if found else len(data)


def _inserted(data: bytes, place: int, receipts: Sequence[Receipt]) -> bytes:
    end = line_end(data, place)
    before, after = data[:place], data[place:]
    glue = b"" if before[-1:] in (b"\n", b"\r") else end
    if before.rstrip(b" \t").endswith(HEADING):
        glue += end
    gap = end if after and OTHER_HEADING.match(b"\n" + after, 1) else b""
    return before + glue + b"".join(_texts(receipts, end)) + gap + after


def _texts(receipts: Sequence[Receipt], end: bytes) -> list[bytes]:
    return [receipt_line(each).encode() + end for each in receipts]


def line_end(data: bytes, place: int = 0) -> bytes:
    """The line end in use just before `place`; else the file's first."""
    if place:
        tail = data[max(place - 2, 0) : place]
        if tail[-1:] in (b"\n", b"\r"):
            return b"\r\n" if tail == b"\r\n" else tail[-1:]
    found = LINE_END.search(data)
    return found.group() if found else b"\n"


def _harmless(text: str, longest: int) -> str:
    """One line, without what separates the parts of it and without mark-up that hides things."""
    text = text[: longest * 4]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    text = " ".join(text.split())
    if len(text) > longest:
        text = text[: longest - 1].rstrip() + "…"
    text = TAG.sub("&lt;", text.replace("·", "|"))
    return text.replace("%%", "% %").replace("-->", "-- >")


def _moment(at: int) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at // 1000))
    except (ValueError, OverflowError, OSError):
        return str(at)
