"""A picture on the terminal that is painted over and over in place, below what was printed.

Everything goes out in one write and only lines that changed are written, so
that nothing flickers. While it is there the cursor is hidden and keys are not
echoed; both come back however we leave, and also while the job is suspended.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from hypervisor.cli.output import drop_output, width

HIDE, SHOW = "\033[?25l", "\033[?25h"
NO_WRAP, WRAP = "\033[?7l", "\033[?7h"
CLEAR_LINE, CLEAR_BELOW = "\033[K", "\033[J"
WHOLE, BACK = "\033[?1049h\033[H", "\033[?1049l"
ECHO_AND_LINES = 3  # where termios keeps these flags


class Screen:
    """`paint` replaces the picture; what goes `above` it stays and scrolls away.

    `whole` takes the whole screen, as `top` does, and gives it back afterwards.
    """

    def __init__(self, whole: bool = False, keys: bool = False) -> None:
        self._out = sys.stdout.fileno()
        self._whole, self._keys = whole, keys
        self._drawn: list[str] = []
        self._columns = 0
        self._typing: list[Any] | None = None
        self._before: dict[int, Any] = {}
        self._gone = False

    def __enter__(self) -> Screen:
        sys.stdout.flush()
        for number, handler in ((signal.SIGTSTP, self._suspend), (signal.SIGCONT, self._resume)):
            self._before[number] = signal.signal(number, handler)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            found = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        return found.columns or 80, found.lines or 24

    def paint(self, lines: Sequence[str], above: Sequence[str] = ()) -> None:
        """Lines must fit; they may hold colours, which do not count."""
        if self._gone or not in_foreground(self._out):
            return
        columns, _ = self.size()
        anew = bool(above) or columns != self._columns
        out = [NO_WRAP, self._to_the_top(columns), CLEAR_BELOW if columns != self._columns else ""]
        rows = [*above, *lines]
        for index, row in enumerate(rows):
            same = not anew and index < len(self._drawn) and row == self._drawn[index]
            out.append("" if same else f"{row}{CLEAR_LINE}")
            if index < len(rows) - 1:
                out.append("\r\n")
        if len(rows) < len(self._drawn):
            out.append(f"\033[{width(plain(rows[-1])) + 1}G{CLEAR_BELOW}" if rows else CLEAR_BELOW)
        if anew or list(lines) != self._drawn:
            self._write("".join([*out, WRAP]))
        self._drawn, self._columns = list(lines), columns

    def clear(self) -> None:
        """Take the picture away; what is printed next comes in its place."""
        if self._drawn and in_foreground(self._out):
            self._write(self._to_the_top(self.size()[0]) + CLEAR_BELOW)
        self._drawn = []

    def leave(self) -> None:
        """Keep the picture as it is; what is printed next comes below."""
        if self._drawn:
            self._write("\r\n")
        self._drawn = []

    def key(self, seconds: float) -> str:
        """The key that was pressed within so long."""
        if not self._keys or self._gone:
            time.sleep(seconds)
            return ""
        try:
            pressed = select.select([self._out], [], [], seconds)[0]
            return os.read(self._out, 64).decode("utf-8", "replace") if pressed else ""
        except OSError:  # a terminal that can only be written to
            self._keys = False
            return ""

    def _to_the_top(self, columns: int) -> str:
        """A narrower terminal has broken long lines in two; then the picture is taller."""
        if self._whole:
            return "\033[H"
        if not self._drawn:
            return "\r"
        if columns == self._columns:
            height = len(self._drawn)
        else:
            height = sum(max(-(-width(plain(line)) // columns), 1) for line in self._drawn)
        return f"\r\033[{height - 1}A" if height > 1 else "\r"

    def _write(self, text: str) -> None:
        """Straight to the terminal: a signal handler may be the one who writes."""
        encoding = sys.stdout.encoding or "utf-8"
        rest = memoryview(text.encode(encoding, "replace"))
        while rest and not self._gone:
            try:
                rest = rest[os.write(self._out, rest) :]
            except BlockingIOError:
                select.select([], [self._out], [])
            except OSError:  # the terminal was closed
                self._gone = True
                drop_output()

    def _take(self) -> None:
        if not in_foreground(self._out):
            return
        with suppress(termios.error):
            self._typing = termios.tcgetattr(self._out)
            silent = [*self._typing]
            silent[ECHO_AND_LINES] &= ~(termios.ECHO | (termios.ICANON if self._keys else 0))
            termios.tcsetattr(self._out, termios.TCSADRAIN, silent)
        self._write((WHOLE if self._whole else "") + HIDE)

    def _give_back(self) -> None:
        if not in_foreground(self._out):
            return
        self._write((BACK if self._whole else "") + SHOW)
        if self._typing is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._out, termios.TCSADRAIN, self._typing)
            self._typing = None

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self.leave()
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)

    def _resume(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTSTP, self._suspend)
        self._take()


def can_show_pictures() -> bool:
    """Whether standard output is a terminal that can move its cursor, and ours to use."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return False
    return in_foreground(sys.stdout.fileno())


def in_foreground(terminal: int) -> bool:
    """A job in the background leaves the terminal to others."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # it is not the terminal that controls us: nobody shares it
        return True


def plain(line: str) -> str:
    """Without its colours."""
    if "\033" not in line:
        return line
    import re

    return re.sub(r"\033\[[0-9;]*m", "", line)
