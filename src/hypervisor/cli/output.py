"""Printing: JSON for programs, aligned and safe text for people.

Task text is data: control characters never reach the terminal as they are.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hypervisor.core.text import JOINERS
from hypervisor.core.text import one_line as one_line

COLOURS = {
    "inbox": "35",
    "waiting": "33",
    "active": "36",
    "in_progress": "34;1",
    "merging": "34",
    "review": "35;1",
    "blocked": "31",
    "done": "32",
    "failed": "31;1",
    "cancelled": "90",
}

WIDEST_CELL = 20
BEGINS_BLOCK = ("", " ", "#", "-", "*", "|", ">")  # lines of Markdown that are no plain text
CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}  # JSON lets them pass
READABLE = 110  # columns of a line of text that the eye follows with ease


def plain(value: Any) -> Any:
    """Values as JSON knows them: a named tuple becomes an object."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


def print_json(value: Any) -> None:
    print(_json_text(value))


def print_json_object(members: Mapping[str, Any]) -> None:
    """An object that need not be held as a whole: an iterator becomes a list as it comes."""
    before = "{"
    for name, value in members.items():
        print(f"{before}{_json_text(name)}: ", end="")
        if isinstance(value, Iterator):
            _print_list(value)
        else:
            print(_json_text(value), end="")
        before = ", "
    print("}" if members else "{}")


def _print_list(values: Iterator[Any]) -> None:
    before = "["
    for value in values:
        print(f"{before}{_json_text(value)}", end="")
        before = ", "
    print("[]" if before == "[" else "]", end="")


def _json_text(value: Any) -> str:
    import json

    text = json.dumps(plain(value), ensure_ascii=False).translate(CONTROLS)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:  # half a surrogate pair, or a terminal that is not UTF-8
        text = json.dumps(plain(value))
    return text


def block(text: str, indent: str = "  ") -> str:
    """Text over several lines, each of them safe."""
    return "\n".join(indent + one_line(line) for line in text.splitlines())


def colour(text: str, state: str) -> str:
    return painted(text, COLOURS.get(state, "0")) if wants_colour() else text


def wants_colour() -> bool:
    """Colours are for terminals that know them, and for people who want them."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty()


def painted(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m"


def say(*lines: str) -> None:
    """Print what is only told on the way: no reason to stop if nobody listens any more."""
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except OSError:
        drop_output()


def drop_output() -> None:
    """What could not be written must not be tried again when the program ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def wrapped(text: str, indent: str = "  ", first: str | None = None) -> str:
    """Text on as many lines as a terminal needs, broken between words."""
    if not sys.stdout.isatty():
        return f"{indent if first is None else first}{text}"
    from textwrap import fill

    return fill(
        text,
        min(columns_here(), READABLE) - 1,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def paragraphs(text: str) -> str:
    """A page of text, safe, and on a terminal as wide as that; what is indented, or a heading, a
    list, a quotation or a table, stays as it is."""
    if not sys.stdout.isatty() or "```" in text:
        return block(text)
    told = []
    for part in text.split("\n\n"):
        lines = [one_line(line) for line in part.split("\n")]
        as_it_is = any(line[:1] in BEGINS_BLOCK or line[0].isdecimal() for line in lines)
        told.append(
            "\n".join(f"  {each}" for each in lines) if as_it_is else wrapped(" ".join(lines))
        )
    return "\n\n".join(told)


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    states: Sequence[str] = (),
    widest: int = WIDEST_CELL,
) -> None:
    """Columns as wide as needed; on a terminal each row stays on one line."""
    lines = [[one_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        lines = [[*(cut(cell, widest) for cell in line[:-1]), line[-1]] for line in lines]
    widths = [max(map(width, column)) for column in zip(head, *lines, strict=True)][:-1]
    room = max(columns_here() - sum(widths) - 2 * len(widths), WIDEST_CELL)
    if sys.stdout.isatty():
        print(colour(_row(head, widths), "cancelled"))
        lines = [[*line[:-1], cut(line[-1], room)] for line in lines]
    for index, line in enumerate(lines):
        print(colour(_row(line, widths), states[index]) if states else _row(line, widths))


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (w - width(cell)) for cell, w in zip(cells, widths, strict=False)]
    return "  ".join([*padded, cells[-1]]).rstrip()


def width(text: str) -> int:
    """How many columns a terminal gives the text: wide letters take two, accents none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(c) or c in JOINERS else 2 if east_asian_width(c) in "WF" else 1 for c in text
    )


def cut(text: str, columns: int) -> str:
    """The text, shortened to fit."""
    if width(text) <= columns:
        return text
    kept = text[: columns - 1]
    while width(kept) > columns - 1:
        kept = kept[:-1]
    return kept + "…"


def clock(ms: int | None) -> str:
    """A moment in local time, with the date unless it is today."""
    if ms is None:
        return ""
    moment = time.localtime(ms / 1000)
    today = time.strftime("%Y-%m-%d", moment) == time.strftime("%Y-%m-%d")
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", moment)


def duration(ms: int) -> str:
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    return (
        f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {seconds} s"
    )


def columns_here() -> int:
    try:
        return os.get_terminal_size().columns
    except OSError:
        return 200
