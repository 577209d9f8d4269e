"""Printing: JSON for programs, aligned and safe text for people.

Task text is data: control characters never reach the terminal as they are.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from hypervisor.core.errors import EXIT_OK
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import JOINERS
from hypervisor.core.text import one_line as one_line

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import SettledResult
    from hypervisor.queue.steer import Moved

GREEN, RED, YELLOW, BLUE, DIM, BOLD = "green", "red", "yellow", "blue", "bright_black", "bold"
STATE_STYLES = {
    "inbox": "magenta",
    "waiting": YELLOW,
    "active": "cyan",
    "in_progress": "bold blue",
    "merging": BLUE,
    "review": "bold magenta",
    "blocked": RED,
    "done": GREEN,
    "failed": "bold red",
    "cancelled": DIM,
}
CODES = {"bold": 1, "reverse": 7, "bright_black": 90} | {
    name: code
    for code, name in enumerate(("red", "green", "yellow", "blue", "magenta", "cyan"), 31)
}


class Glyphs(NamedTuple):
    full: str
    half: str
    rest: str
    dot: str
    bad: str
    good: str
    call: str


PRETTY = Glyphs("━", "╸", "─", " · ", "✗", "✓", "▸")
PLAIN = Glyphs("#", "-", "-", ", ", "x", "*", ">")
Span = tuple[str, str]  # text and its style, in the words of rich
Line = list[Span]

WIDEST_CELL = 20
BEGINS_BLOCK = ("", " ", "#", "-", "*", "|", ">")  # lines of Markdown that are not plain text
CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}  # JSON lets them pass
READABLE = 110  # columns: longer lines are hard to read


def respond(
    args: Namespace,
    value: Any,
    text: str | Iterable[str] | Callable[[], object] = (),
    code: int = EXIT_OK,
    *,
    hv: Context | None = None,
) -> int:
    """Print an answer, as JSON with --json, else as text; returns the exit code. With the
    context, batches in it get their names."""
    if args.json:
        print_json(value, hv)
    elif callable(text):
        text()
    else:
        for line in [text] if isinstance(text, str) else text:
            print(line)
    return code


def confirm(
    args: Namespace,
    value: Any,
    text: str | Iterable[str],
    code: int = EXIT_OK,
) -> int:
    """Confirm what was done. With -q or without a terminal nothing is printed: a script has the
    exit code, and --json."""
    wanted = not args.quiet and sys.stdout.isatty()
    return respond(args, value, text if wanted else (), code)


def confirm_state(args: Namespace, answer: Moved | SettledResult) -> int:
    """Confirm which state a task is in now."""
    from hypervisor.queue.lifecycle import state_name

    return confirm(args, answer, f"{answer.task} {state_name(answer.state)}")


def print_json(value: Any, hv: Context | None = None) -> None:
    from hypervisor.cli.json_form import named

    print(_json_text(value if hv is None else named(hv, value)))


def print_json_object(members: Mapping[str, Any]) -> None:
    """Print an object without holding all of it in memory: iterators are printed as lists."""
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

    from hypervisor.cli.json_form import plain

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
    """The text in the color of a state, where colors are wanted."""
    return render([(text, STATE_STYLES.get(state, ""))], wants_colour())


def render(line: Line, colours: bool) -> str:
    """A line as a string, without loading rich."""
    if not colours:
        return "".join(text for text, _ in line).rstrip()
    return "".join(_painted(text, style) if style else text for text, style in line if text)


def print_lines(lines: Iterable[Line]) -> None:
    for line in lines:
        print(render(line, wants_colour()))


def fit(line: Line, columns: int) -> Line:
    """The line, cut where the terminal ends."""
    fitting: Line = []
    for text, style in line:
        if columns <= 0:
            break
        kept = cut(text, columns)
        fitting.append((kept, style))
        columns -= width(kept)
    return fitting


def length(line: Line) -> int:
    return sum(width(text) for text, _ in line)


def joined(parts: Iterable[Span]) -> Line:
    """The parts that are not empty, with dots between them."""
    dot = (glyphs().dot, DIM)
    spans = [span for part in parts if part[0] for span in (dot, part)]
    return spans[1:]


def glyphs() -> Glyphs:
    return PRETTY if "utf" in (sys.stdout.encoding or "").lower() else PLAIN


def wants_colour(stream: TextIO | None = None) -> bool:
    """Colors are for terminals that know them, and for people who want them."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return (stream or sys.stdout).isatty()


def is_live_terminal() -> bool:
    """Whether standard output is a terminal that can move its cursor, and ours to use."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return False
    return in_foreground(sys.stdout.fileno())


def in_foreground(terminal: int) -> bool:
    """Whether this job may use the terminal; a background job must not."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # it does not control us, so no one shares it
        return True


def _painted(text: str, style: str) -> str:
    return f"\033[{';'.join(str(CODES[word]) for word in style.split())}m{text}\033[0m"


def say(*lines: str) -> None:
    """Print progress; continue if the output is closed."""
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except OSError:
        drop_output()


def warn(*lines: str) -> None:
    """Print messages to standard error; continue if it is closed."""
    try:
        for line in lines:
            print(line, file=sys.stderr, flush=True)
    except OSError:
        drop_output(sys.stderr)


def drop_output(stream: TextIO | None = None) -> None:
    """Discard what could not be written, so that it is not tried again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def near_path(path: str) -> str:
    """The path relative to the working directory, if it is below that."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


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
    """Text made safe, and wrapped to the terminal; headings, lists, quotations, tables and
    indented lines stay as they are."""
    if not sys.stdout.isatty() or "```" in text:
        return block(text)
    result = []
    for part in text.split("\n\n"):
        lines = [one_line(line) for line in part.split("\n")]
        as_it_is = any(line[:1] in BEGINS_BLOCK or line[0].isdecimal() for line in lines)
        indented = "\n".join(f"  {line}" for line in lines)
        result.append(indented if as_it_is else wrapped(" ".join(lines)))
    return "\n\n".join(result)


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    states: Sequence[str] = (),
    widest: int = WIDEST_CELL,
) -> None:
    """Columns as wide as needed; on a terminal each row stays on one line."""
    long_table(head, [(list(rows), states)], widest)


def long_table(
    head: Sequence[str],
    pages: Iterable[tuple[Sequence[Sequence[str]], Sequence[str]]],
    widest: int = WIDEST_CELL,
) -> None:
    """A table that is printed page by page: rows and their states. Columns only get wider."""
    widths, is_terminal, has_head = [width(cell) for cell in head[:-1]], sys.stdout.isatty(), False
    for rows, states in pages:
        lines = [[one_line(cell) for cell in row] for row in rows]
        if is_terminal:
            lines = [[*(cut(cell, widest) for cell in line[:-1]), line[-1]] for line in lines]
        for line in lines:
            widths = [max(w, width(cell)) for w, cell in zip(widths, line, strict=False)]
        room = max(columns_here() - sum(widths) - 2 * len(widths), WIDEST_CELL)
        if is_terminal:
            lines = [[*line[:-1], cut(line[-1], room)] for line in lines]
            if not has_head:
                print(colour(_row(head, widths), "cancelled"))
        has_head = True
        for index, line in enumerate(lines):
            print(colour(_row(line, widths), states[index]) if states else _row(line, widths))


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (w - width(cell)) for cell, w in zip(cells, widths, strict=False)]
    return "  ".join([*padded, cells[-1]]).rstrip()


def width(text: str) -> int:
    """The width of the text on a terminal: wide letters take two columns, accents none."""
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
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return 200
