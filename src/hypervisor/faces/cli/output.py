"""Printing: JSON for programs, aligned and safe text for people.

Task text is data: control characters never reach the terminal as they are.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

COLOURS = {
    "inbox": "35", "waiting": "33", "active": "36", "in_progress": "34;1", "merging": "34",
    "review": "35;1", "blocked": "31", "done": "32", "failed": "31;1", "cancelled": "90",
}  # fmt: skip


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
    import json

    print(json.dumps(plain(value), ensure_ascii=False).encode("utf-8", "replace").decode())


def one_line(text: str) -> str:
    """Text for one terminal line: line breaks and control characters made visible."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def block(text: str, indent: str = "  ") -> str:
    """Text over several lines, each of them safe."""
    return "\n".join(indent + one_line(line) for line in text.splitlines())


def colour(text: str, state: str) -> str:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\033[{COLOURS.get(state, '0')}m{text}\033[0m"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], states: Sequence[str] = ()) -> None:
    """Columns as wide as needed; the last one gets what the terminal has left."""
    lines = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    room = _columns() - sum(widths[:-1]) - 2 * (len(widths) - 1)
    if sys.stdout.isatty():
        print(
            colour(
                "  ".join(h.ljust(w) for h, w in zip(head, widths, strict=True)).rstrip(),
                "cancelled",
            )
        )
    for index, line in enumerate(lines):
        *cells, last = line
        if sys.stdout.isatty() and len(last) > max(room, 20):
            last = last[: max(room, 20) - 1] + "…"
        text = "  ".join(
            [*(c.ljust(w) for c, w in zip(cells, widths, strict=False)), last]
        ).rstrip()
        print(colour(text, states[index]) if states else text)


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


def _columns() -> int:
    try:
        return os.get_terminal_size().columns
    except OSError:
        return 200
