"""Live frames on a terminal, drawn by rich: loaded only there.

rich leaves some things to us, and they are here: a narrower terminal has broken the lines of the
last frame in two; keys must not be echoed into a frame; Ctrl-Z gives the terminal back; a job in
the background leaves it alone; a terminal that was closed is not an error.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import TextIOWrapper
from types import FrameType
from typing import Any

from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.segment import Segment, SegmentLines
from rich.table import Table
from rich.text import Text

from hypervisor.cli import render
from hypervisor.cli.output import (
    BLUE,
    BOLD,
    DIM,
    Line,
    drop_output,
    in_foreground,
    one_line,
    say,
    wants_colour,
    width,
)
from hypervisor.cli.views import MORE, View, failure
from hypervisor.monitoring.monitor import FRAME
from hypervisor.monitoring.progress import running
from hypervisor.monitoring.snapshot import Snapshot
from hypervisor.monitoring.status import CurrentAttempt
from hypervisor.queue.task import Task

NO_WRAP, WRAP = "\033[?7l", "\033[?7h"
LOCAL_FLAGS = 3  # where termios keeps ECHO and ICANON
ROW_KEPT_MS = 2_000
NARROWEST_ROW, NARROWEST_TABLE = 34, 64  # columns; on a narrower terminal they are cut off


def one_row(line: Line) -> Text:
    """Spans as text that stays on one row. Never parsed as markup."""
    return Text.assemble(*line, no_wrap=True, overflow="ellipsis")


def terminal_console() -> Console:
    """Characters that cannot be encoded are replaced, so that no frame fails."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(
        force_terminal=True,
        force_interactive=True,
        color_system="standard" if wants_colour() else None,
        highlight=False,
        markup=False,
        emoji=False,
    )


class Screen:
    """`paint` replaces the frame; lines `above` it stay and scroll away.

    `whole` uses the whole screen, as `top` does; `stays` leaves the last frame on it.
    """

    def __init__(self, *, whole: bool = False, keys: bool = False, stays: bool = False) -> None:
        self._console, self._terminal = terminal_console(), sys.stdout.fileno()
        self._whole, self._keys, self._stays = whole, keys, stays
        self._live: Live | None = None  # None: the terminal is not ours at the moment
        self._closed = False
        self._drawn: list[list[Segment]] = []
        self._columns = 0
        self._typing: list[Any] | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Screen:
        for number, handler in ((signal.SIGTSTP, self._suspend), (signal.SIGCONT, self._resume)):
            self._previous[number] = signal.signal(number, handler)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back(self._stays)
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def size(self) -> tuple[int, int]:
        """Columns and rows to draw on; the last column stays free, so that nothing wraps."""
        try:
            columns, rows = os.get_terminal_size(self._terminal)
        except OSError:
            columns, rows = 0, 0
        return (columns or 80) - 1, rows or 24

    def paint(self, frame: RenderableType, above: Sequence[Text] = ()) -> bool:
        """False while the terminal is not ours."""
        if self._live is None and not self._closed:
            self._take()  # brought back into the foreground
        with self._writing() as live:
            if live is None:
                return False
            resized = self._fit_to_size()
            lines = self._console.render_lines(frame, pad=False)
            if resized or above or lines != self._drawn:
                self._drawn = lines
                live.update(SegmentLines(lines, new_lines=True))
                self._console.print(Group(*above)) if above else live.refresh()
        return True

    def lend(self, writers: Sequence[Callable[[], None]]) -> bool:
        """Clear the frame and let others write; the next frame is drawn below. False while the
        terminal is not ours."""
        if self._live is None or not in_foreground(self._terminal):
            return False
        self._give_back(stays=False)
        for write in writers:
            write()
        self._take()
        return True

    def key(self, seconds: float) -> str:
        """The key that was pressed within that time."""
        if self._keys and self._live:
            with suppress(OSError):  # a terminal that can only be written to
                pressed = select.select([self._terminal], [], [], seconds)[0]
                return os.read(self._terminal, 64).decode("utf-8", "replace") if pressed else ""
        time.sleep(seconds)
        return ""

    @contextmanager
    def _writing(self) -> Iterator[Live | None]:
        """Hold back Ctrl-Z during a frame; write nothing once the terminal was closed."""
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTSTP,))
        try:
            yield self._live if in_foreground(self._terminal) else None
        except OSError:
            self._live, self._closed = None, True
            drop_output()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTSTP,))

    def _fit_to_size(self) -> bool:
        """Whether the width has changed. A narrower terminal has wrapped long lines: clear them
        all, and put the cursor where rich expects it."""
        columns, rows = self.size()
        self._console.size = ConsoleDimensions(columns, rows)
        before, self._columns = self._columns, columns
        if before in (0, columns):
            return False
        if not self._whole and self._drawn:
            lengths = [Segment.get_line_length(line) for line in self._drawn]
            height = sum(max(-(-length // (columns + 1)), 1) for length in lengths)
            up = f"\033[{height - 1}A" if height > 1 else ""
            self._console.file.write(f"\r{up}\033[J" + "\n" * (len(lengths) - 1))
        return True

    def _take(self) -> None:
        self._drawn = []
        if not in_foreground(self._terminal):
            return
        with suppress(termios.error):
            self._typing = termios.tcgetattr(self._terminal)
            silent = [*self._typing]
            silent[LOCAL_FLAGS] &= ~(termios.ECHO | (termios.ICANON if self._keys else 0))
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, silent)
        self._live = Live(
            console=self._console,
            screen=self._whole,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        with self._writing() as live:
            if live is not None:
                self._console.file.write(NO_WRAP)
                live.start()

    def _give_back(self, stays: bool) -> None:
        with self._writing() as live:
            if live is not None:
                live.transient = self._whole or not stays
                self._fit_to_size()
                live.stop()
                self._console.file.write(WRAP)
                self._console.file.flush()
                self._live = None
        if self._typing is not None and in_foreground(self._terminal):
            with suppress(termios.error):
                termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._typing)
            self._typing = None

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self._give_back(stays=True)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)

    def _resume(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTSTP, self._suspend)
        if self._live is None:  # else the signal came without a stop
            self._take()


class LiveView(View):
    """A frame that is drawn again a few times a second, with failures above it."""

    shows_details = is_live = True

    def __init__(self, stays: bool) -> None:
        self._screen = Screen(stays=stays)
        self._rows = Rows()
        self._painted_at = 0.0
        self._above: list[Text] = []
        self._writers: list[Callable[[], None]] = []
        self._frame = Group()

    def __enter__(self) -> LiveView:
        self._screen.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._paint()
        self._screen.__exit__()
        say(*(text.plain for text in self._above))
        for write in self._writers:
            write()

    def failed(self, tasks: Sequence[Task], more: bool) -> None:
        self._above += [one_row(failure(task)) for task in tasks]
        self._above += [one_row([(MORE, DIM)])] if more else []

    def write_above(self, write: Callable[[], None]) -> None:
        self._writers.append(write)

    def show(self, snapshot: Snapshot) -> None:
        if time.monotonic() - self._painted_at >= FRAME * 0.9:
            self._painted_at = time.monotonic()
            self._frame = draw(snapshot, self._rows, *self._screen.size())
            self._paint()

    def _paint(self) -> None:
        if self._writers and self._screen.lend(self._writers):
            self._writers = []
        if self._screen.paint(self._frame, self._above):
            self._above = []


class Rows:
    """Keeps each worker in its row, so that rows do not move."""

    def __init__(self) -> None:
        self._workers: list[tuple[str, int] | None] = []
        self._needed_at = 0
        self.title_width = 0

    def place(self, attempts: Collection[CurrentAttempt], now: int) -> list[CurrentAttempt | None]:
        """The running attempts, each in its row; None is an empty row."""
        here = running(attempts)
        self._workers = [worker if worker in here else None for worker in self._workers]
        for worker in [worker for worker in here if worker not in self._workers]:
            if None in self._workers:
                self._workers[self._workers.index(None)] = worker
            else:
                self._workers.append(worker)
        if not self._workers or self._workers[-1] is not None:
            self._needed_at = now
        while now - self._needed_at > ROW_KEPT_MS and self._workers and not self._workers[-1]:
            self._workers.pop()
        titles = [width(one_line(attempt.title)) for attempt in here.values()]
        self.title_width = max(self.title_width, *titles, 0)
        return [None if worker is None else here[worker] for worker in self._workers]


def draw(snapshot: Snapshot, rows: Rows, columns: int, height: int) -> Group:
    """The frame of a run, at most `height` rows of `columns`."""
    status, now = snapshot.status, snapshot.now
    head = [[], *render.progress(snapshot, columns), *render.stage_progress(snapshot)]
    head += [*render.hints(snapshot), *render.money_lines(status), render.host_line(status)]
    frame: list[RenderableType] = [one_row(line) for line in head[: max(height, 1)]]
    room = max(height - len(head) - 1, 0)
    shown, more = rows.place(status.attempts, now), 0
    if len(shown) > room:
        shown, more = _oldest([attempt for attempt in shown if attempt], room)
    if shown:
        frame.append(attempts_table(shown, now, columns, title_width=rows.title_width))
    if more and room:
        frame.append(one_row([(f"{'':>6}  and {more:,} more", DIM)]))
    return Group(*frame)


def draw_top(snapshot: Snapshot, columns: int, height: int) -> Group:
    """The frame of `hv top`: all running attempts, on the whole screen."""
    status = snapshot.status
    head = [render.figures(snapshot), *render.hints(snapshot), *render.money_lines(status)]
    head += [render.host_line(status), []]
    room = max(height - len(head) - 2, 1)
    shown, more = _oldest(running(status.attempts).values(), room)
    table = attempts_table(shown, snapshot.now, columns, batches=snapshot.batches)
    foot: list[Line] = [[(f"and {more:,} more", DIM)]] if more else []
    foot += [[]] * (room - len(shown) - len(foot))
    return Group(*map(one_row, head), table, *map(one_row, [*foot, [("q: quit", DIM)]]))


def _oldest(
    attempts: Collection[CurrentAttempt], room: int
) -> tuple[list[CurrentAttempt | None], int]:
    """The attempts that fit, longest running first, and how many more there are."""
    ordered = sorted(attempts, key=lambda attempt: (attempt.since, attempt.task))
    shown = ordered if len(ordered) <= room else ordered[: max(room - 1, 0)]
    return [*shown], len(ordered) - len(shown)


def attempts_table(
    attempts: Sequence[CurrentAttempt | None],
    now: int,
    columns: int,
    *,
    title_width: int = 0,
    batches: Mapping[str, str] | None = None,
) -> Table:
    """Age, memory, title and last line; the id if there is room. With `batches`, names by id,
    also a column for them and a header."""
    named, wide = batches is not None, batches is not None or columns >= render.WIDE
    table = Table(box=None, show_header=named, header_style=BOLD, pad_edge=False)
    table.padding, least = (0, 2, 0, 0), NARROWEST_TABLE if named else NARROWEST_ROW
    table.width = least if columns < least else None  # cut off where the terminal ends
    add = partial(table.add_column, no_wrap=True, overflow="ellipsis")
    add("AGE", justify="right", style=BLUE, min_width=0 if named else 6)
    add("MEMORY", justify="right", min_width=6)
    if wide:
        add("TASK", style=DIM)
    if named:
        add("BATCH", style=DIM, max_width=max(columns // 8, 8))
    widest = max(columns * 3 // 10, 12)
    add("TITLE", min_width=min(title_width, widest), max_width=widest)
    table.add_column(one_row([("LAST LINE", "")]), style=DIM)  # gets the rest
    for attempt in attempts:
        cells = _cells(attempt, now, batches) if attempt else ("", "", "", "", "", "")
        shown = zip(cells, (True, True, wide, named, True, True), strict=True)
        table.add_row(*(one_row([(cell, "")]) for cell, is_shown in shown if is_shown))
    return table


def _cells(attempt: CurrentAttempt, now: int, batches: Mapping[str, str] | None) -> tuple[str, ...]:
    return (
        render.clock(now - attempt.since),
        render.memory_text(attempt.memory),
        attempt.task,
        one_line((batches or {}).get(attempt.batch, attempt.batch)),
        one_line(attempt.title),
        one_line(render.activity(attempt)),
    )
