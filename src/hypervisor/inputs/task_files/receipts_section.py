"""Receipts as lines of a task file, under one heading of its body.

A line is a shortened copy of a receipt in the store, identified by the number and hash at its
end. Whatever text a receipt has, it stays on one line and cannot look like another. Lines are
bytes here, so the rest of a file need not be text. What people wrote around the lines stays.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.inputs.task_files.front_matter import find_front_matter
from hypervisor.queue.receipt import Receipt

HEADING = b"## Receipts"
HASH_SHOWN = 12
MAX_TEXT_LENGTH = 500
MAX_ACTOR_LENGTH = 60
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
    actor = _one_line(name, MAX_ACTOR_LENGTH)
    text = _one_line(receipt.text, MAX_TEXT_LENGTH)
    mark = f"#{receipt.number} {receipt.hash[:HASH_SHOWN]}"
    return f"- {_moment(receipt.at)} · {actor} · {text} · {mark}"


def with_receipts(data: bytes, receipts: Sequence[Receipt]) -> bytes:
    """The file with all of these receipts, in their order; existing lines stay."""
    data = _without_torn_line(data, receipts)
    start = section_start(data)
    present = {} if start is None else {line.mark: line for line in _lines(data, start)}
    missing = [receipt for receipt in receipts if receipt.hash[:HASH_SHOWN] not in present]
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
    """Lines that were edited, removed, repeated, moved or added by someone else.

    `others`, left by earlier tasks about the same file, are allowed."""
    start = section_start(data)
    lines = [] if start is None else _lines(data, start)
    order = {receipt.hash[:HASH_SHOWN]: place for place, receipt in enumerate(receipts)}
    known = {receipt.hash[:HASH_SHOWN]: receipt for receipt in (*receipts, *others)}
    problems, seen, last = [], set[str](), -1
    line_number, counted_to = 1, 0
    for line in lines:
        line_number += len(LINE_END.findall(data, counted_to, line.start))
        counted_to, where = line.start, f"line {line_number}"
        name = f"#{line.number} {line.mark}"
        if line.mark not in known:
            problems.append(f"{where}: {name} is not in the store: edited, or from another store")
        elif line.mark in seen:
            problems.append(f"{where}: {name} appears twice")
        elif line.text != receipt_line(known[line.mark]).encode():
            problems.append(f"{where}: {name} was edited")
        elif order.get(line.mark, last) < last:
            problems.append(f"{where}: {name} was moved")
        seen.add(line.mark)
        last = max(last, order.get(line.mark, -1))
    missing = [receipt for receipt in receipts if receipt.hash[:HASH_SHOWN] not in seen]
    return problems + [f"#{r.number} {r.hash[:HASH_SHOWN]} is missing" for r in missing]


def section_start(data: bytes) -> int | None:
    """Where the first heading of receipts outside a code block begins."""
    place = find_front_matter(data)
    if HEADING not in data:
        return None
    body = 0 if place is None else place.body
    headings = [match.start() for match in HEADING_LINE.finditer(data, body)]
    if not headings:
        return None
    ends = [(end, begin) for begin, end in _code_blocks(data, body)]
    for heading in headings:
        next_block = bisect_right(ends, (heading, len(data)))
        if next_block == len(ends) or heading < ends[next_block][1]:
            return heading
    return None


def _code_blocks(data: bytes, start: int) -> list[tuple[int, int]]:
    """Closed code blocks: an open one would hide everything appended after it."""
    blocks, opened = [], None
    for match in FENCE.finditer(data, start):
        fence = match.group(1)
        if opened is None:
            opened = match
        elif fence.startswith(opened.group(1)):
            blocks.append((opened.start(), match.start()))
            opened = None
    return blocks


def _lines(data: bytes, start: int) -> list[Line]:
    lines, position = [], start
    for text in data[start:].splitlines(keepends=True):
        match = RECEIPT_LINE.match(text.rstrip(b"\r\n")) if text.startswith(b"- ") else None
        if match:
            end = position + len(text.rstrip(b"\r\n"))
            number, mark = int(match.group(1)), match.group(2).decode()
            lines.append(Line(position, end, number, mark, data[position:end]))
        position += len(text)
    return lines


def _without_torn_line(data: bytes, receipts: Sequence[Receipt]) -> bytes:
    """The file without a partial line or zeros at its end, left by a power cut: the store has the
    whole line."""
    whole = data.rstrip(b"\0")
    if whole.endswith(b"\r") and line_end(data) == b"\r\n":
        whole = whole[:-1]
    torn = whole[max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1 :]
    if (not torn and whole == data) or section_start(data) is None:
        return data
    if torn and not any(receipt_line(receipt).encode().startswith(torn) for receipt in receipts):
        return data
    return whole[: len(whole) - len(torn)]


def _with_section(data: bytes, receipts: Sequence[Receipt]) -> bytes:
    end = line_end(data)
    if data and data[-1:] not in b"\r\n":
        data += end
    gap = b"" if not data or data.endswith(end * 2) else end
    return data + gap + HEADING + end + end + b"".join(_texts(receipts, end))


def _placed(
    data: bytes, start: int, receipts: Sequence[Receipt], present: dict[str, Line]
) -> list[tuple[int, Receipt]]:
    """Where each missing receipt belongs: after the one before it, or at the section's end."""
    placed: list[tuple[int, Receipt]] = []
    lines = [present.get(receipt.hash[:HASH_SHOWN]) for receipt in receipts]
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
            first = next(filter(None, lines))
            placed.append((first.start, receipt))
    return placed


def _section_end(data: bytes, start: int, present: dict[str, Line]) -> int:
    """The end of the file, unless another section follows."""
    if not OTHER_HEADING.search(data, start + 1):
        return len(data)
    if present:
        return _next_line(data, max(line.end for line in present.values()))
    place = _next_line(data, start)
    gap = LINE_END.match(data, place)
    return gap.end() if gap else place


def _next_line(data: bytes, start: int) -> int:
    match = LINE_END.search(data, start)
    return match.end() if match else len(data)


def _inserted(data: bytes, place: int, receipts: Sequence[Receipt]) -> bytes:
    end = line_end(data, place)
    before, after = data[:place], data[place:]
    glue = b"" if before[-1:] in (b"\n", b"\r") else end
    if before.rstrip(b" \t").endswith(HEADING):
        glue += end
    gap = end if after and OTHER_HEADING.match(b"\n" + after, 1) else b""
    return before + glue + b"".join(_texts(receipts, end)) + gap + after


def _texts(receipts: Sequence[Receipt], end: bytes) -> list[bytes]:
    return [receipt_line(receipt).encode() + end for receipt in receipts]


def line_end(data: bytes, place: int = 0) -> bytes:
    """The line end just before `place`, or else the first one in the file."""
    if place:
        tail = data[max(place - 2, 0) : place]
        if tail[-1:] in (b"\n", b"\r"):
            return b"\r\n" if tail == b"\r\n" else tail[-1:]
    match = LINE_END.search(data)
    return match.group() if match else b"\n"


def _one_line(text: str, limit: int) -> str:
    """One line, without the separator of its parts and without markup that hides text."""
    text = text[: limit * 4]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    text = " ".join(text.split())
    if len(text) > limit:
        text = text[: limit - 1].rstrip() + "…"
    text = TAG.sub("&lt;", text.replace("·", "|"))
    return text.replace("%%", "% %").replace("-->", "-- >")


def _moment(at: int) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at // 1000))
    except (ValueError, OverflowError, OSError):
        return str(at)
