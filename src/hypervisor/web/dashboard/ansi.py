"""Output of programs as lines of styled spans: colors are kept, everything else of a terminal
(moving the cursor, titles, links) is dropped."""

from __future__ import annotations

import re

from hypervisor.core.escape_sequences import SEQUENCE
from hypervisor.core.records import NamedTuple

COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
MAX_LINE = 4_000  # characters shown of one line
STYLES = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 9: "struck"}
ENDS = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 29: ("struck",)}
COLOUR_CODE = re.compile(r"\x1b\[([0-9;]*)m")


class Span(NamedTuple):
    text: str
    look: str = ""  # classes


class Line(NamedTuple):
    spans: tuple[Span, ...]
    left_out: int = 0  # characters of a very long line


def lines(text: str) -> list[Line]:
    """What a terminal would show of each line; a carriage return starts the line again."""
    styles: set[str] = set()
    return [_line(line, styles) for line in text.removesuffix("\n").split("\n")] if text else []


def _line(text: str, styles: set[str]) -> Line:
    text = text.removesuffix("\r").rpartition("\r")[2]
    left_out = max(len(text) - MAX_LINE, 0)
    spans, at = [], 0
    for match in SEQUENCE.finditer(text[:MAX_LINE]):
        if match.start() > at:
            spans.append(_span(text[at : match.start()], styles))
        at = match.end()
        if code := COLOUR_CODE.fullmatch(match[0]):
            _apply(code[1], styles)
    if text[at:MAX_LINE]:
        spans.append(_span(text[at:MAX_LINE], styles))
    return Line(tuple(spans), left_out)


def _span(text: str, styles: set[str]) -> Span:
    return Span(text.expandtabs(4), " ".join(sorted(styles)))


def _apply(codes: str, styles: set[str]) -> None:
    numbers = [int(code or 0) for code in codes.split(";")[:20]]
    while numbers:
        number = numbers.pop(0)
        if number == 0:
            styles.clear()
        elif number in STYLES:
            styles.add(STYLES[number])
        elif number in ENDS:
            styles.difference_update(ENDS[number])
        elif number in (38, 48):  # a color of 256 or of 16 million: shown without
            del numbers[: 2 if numbers[:1] == [5] else 4]
        else:
            _colour(number, styles)


def _colour(number: int, styles: set[str]) -> None:
    if not (30 <= number <= 37 or 90 <= number <= 97 or number == 39):
        return
    styles.difference_update({f"fg-{name}" for name in COLOURS})
    if number != 39:
        styles.add(f"fg-{COLOURS[number % 10]}")
