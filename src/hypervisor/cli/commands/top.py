"""hv top"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection

from hypervisor.cli.live import Screen, can_show_pictures
from hypervisor.cli.output import cut, one_line, print_json, table, wants_colour, width
from hypervisor.cli.progress import count, running
from hypervisor.cli.render import (
    BLUE,
    BOLD,
    DIM,
    Frame,
    Span,
    clock,
    doing_text,
    figures,
    fit,
    hints,
    host_line,
    memory_text,
    money_lines,
    render,
)
from hypervisor.core.errors import EXIT_OK
from hypervisor.queue.context import Context
from hypervisor.queue.look import batches
from hypervisor.runs.status import Attempting, attempts, status

EXAMPLE = "hv top"
EVERY = 1.0
LOOKS_PER_COST = 15
SLOWEST = 5.0
MOST_BATCHES = 1_000
HEAD = ("AGE", "MEMORY", "TASK", "BATCH", "TITLE", "LAST LINE")


def configure(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.json:
        print_json(attempts(hv))
    elif not can_show_pictures():
        print_attempts(hv, attempts(hv), hv.now())
    else:
        _live(hv)
    return EXIT_OK


def print_attempts(
    hv: Context, found: Collection[Attempting], now: int, with_batch: bool = True
) -> None:
    """What runs, as a table."""
    names = _names(hv) if with_batch else {}
    rows = []
    for each in _longest_first(found):
        memory = "" if each.memory is None else memory_text(each.memory)
        batch = [names.get(each.batch, each.batch)] if with_batch else []
        rows.append(
            (clock(now - each.since), memory, each.task, *batch, each.title, doing_text(each))
        )
    head = HEAD if with_batch else tuple(word for word in HEAD if word != "BATCH")
    if rows:
        table(head, rows)


def _live(hv: Context) -> None:
    try:
        with Screen(whole=True, keys=True) as screen:
            key = ""
            while key not in ("q", "Q", "\x1b", "\x04"):
                began = time.monotonic()
                lines = _lines(hv, *screen.size())
                screen.paint([render(line, wants_colour()) for line in lines])
                cost = time.monotonic() - began
                key = screen.key(min(max(cost * LOOKS_PER_COST, EVERY), SLOWEST))
    except KeyboardInterrupt:
        pass


def _lines(hv: Context, columns: int, height: int) -> list[list[Span]]:
    found, now = status(hv), hv.now()
    names = _names(hv)
    scene = Frame(found, count(found.stats.states, found.attempts), now, batches=names)
    head = [figures(scene), *hints(scene), *money_lines(found), host_line(found), []]
    rows = _rows(names, _longest_first(found.attempts), now, columns - 1)
    room = height - len(head) - 1
    if len(rows) > room:
        rows = [*rows[: room - 1], [(f"and {len(rows) - room + 1:,} more", DIM)]]
    foot: list[Span] = [("q leaves", DIM)]
    blank: list[list[Span]] = [[]] * max(room - len(rows), 0)
    return [fit(line, columns - 1) for line in [*head, *rows, *blank, foot][:height]]


def _rows(
    names: dict[str, str], found: list[Attempting], now: int, columns: int
) -> list[list[Span]]:
    """Columns as wide as they need to be, the last line of output gets the rest."""
    cells = [
        (
            clock(now - each.since),
            "" if each.memory is None else memory_text(each.memory),
            each.task,
            one_line(names.get(each.batch, each.batch)),
            one_line(each.title),
            one_line(doing_text(each)),
        )
        for each in found
    ]
    most = (9, 8, 12, max(columns // 8, 8), max(columns // 4, 12))
    widths = [
        min(max([len(HEAD[n]), *(width(row[n]) for row in cells)]), limit)
        for n, limit in enumerate(most)
    ]
    colours = (BLUE, "", DIM, DIM, "", DIM)
    head: list[Span] = [(_padded(HEAD, widths, columns), BOLD)]
    return [head, *([*_spans(row, widths, colours)] for row in cells)]


def _spans(row: tuple[str, ...], widths: list[int], colours: tuple[str, ...]) -> list[Span]:
    spans = []
    for text, room, code, right in zip(row, widths, colours, (1, 1, 0, 0, 0), strict=False):
        short = cut(text, room)
        gap = " " * (room - width(short))
        spans += [(gap + short if right else short + gap, code), ("  ", "")]
    return [*spans, (row[-1], colours[-1])]


def _padded(row: tuple[str, ...], widths: list[int], columns: int) -> str:
    return "".join(text for text, _ in _spans(row, widths, ("",) * len(row)))


def _names(hv: Context) -> dict[str, str]:
    return {batch.id: batch.name for batch in batches(hv, MOST_BATCHES)}


def _longest_first(found: Collection[Attempting]) -> list[Attempting]:
    return sorted(running(found).values(), key=lambda each: (each.since, each.task))
