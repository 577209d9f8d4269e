"""A terminal for programs under test: it runs one and shows what a person would see.

It understands only the escape sequences that Hypervisor uses and fails on all
others: nothing may reach a terminal that is not known to be harmless.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hypervisor.cli.output import width

DEADLINE = 120.0
SETTLED = 0.02  # seconds without a further piece of a picture
PIECE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|([\r\n\t])|([^\x00-\x1f\x7f]+)|(.)", re.DOTALL)


class Screen:
    """The contents of the screen after everything that was written to it."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines = [""]
        self.row = self.column = 0
        self.codes: set[str] = set()
        self.modes: dict[str, bool] = {}
        self.aside: list[str] | None = None

    def write(self, text: str) -> None:
        for piece in PIECE.finditer(text):
            private, numbers, letter, move, words, bad = piece.groups()
            if move == "\r":
                self.column = 0
            elif move == "\n":
                self._down()
            elif move == "\t":
                self.column += 8 - self.column % 8
            elif words:
                self._put(words)
            else:
                assert not bad, repr(bad)
                self._control(letter, numbers, bool(private))

    def resize(self, columns: int, rows: int) -> None:
        """As most terminals do: lines that have become too long are broken."""
        broken: list[str] = []
        for number, line in enumerate(self.lines):
            broken += [line[n : n + columns] for n in range(0, max(len(line), 1), columns)]
            if number == self.row:
                row = len(broken) - 1
        self.lines, self.row = broken, row
        self.column = min(self.column, columns)
        self.columns, self.rows = columns, rows

    def _put(self, words: str) -> None:
        if self.modes.get("7", True):  # a line that is too long continues on the next
            while len(words) > (room := self.columns - self.column):
                self._place(words[:room])
                words = words[room:]
                self._down()
                self.column = 0
        self._place(words)

    def _place(self, words: str) -> None:
        line = self.lines[self.row].ljust(self.column)
        assert self.column + width(words) <= self.columns, (line, words)
        self.lines[self.row] = line[: self.column] + words + line[self.column + len(words) :]
        self.column += len(words)

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")

    def _control(self, letter: str, numbers: str, private: bool) -> None:
        if private:
            assert letter in "hl" and numbers in ("7", "25", "1049"), (letter, numbers)
            self.modes[numbers] = letter == "h"
            if numbers == "1049":
                self._switch(letter == "h")
        elif letter == "m":
            self.codes.add(numbers)
        elif letter == "A":
            self.row = max(self.row - int(numbers or 1), len(self.lines) - self.rows, 0)
        elif letter == "G":
            self.column = int(numbers or 1) - 1
        elif letter == "H":
            assert not numbers
            self.row = self.column = 0
        elif letter == "K":
            self.lines[self.row] = self.lines[self.row][: self.column]
        elif letter == "J":
            self.lines[self.row] = self.lines[self.row][: self.column]
            del self.lines[self.row + 1 :]
        else:
            raise AssertionError((letter, numbers))

    def _switch(self, aside: bool) -> None:
        if aside:
            self.aside, self.lines = self.lines, [""]
        elif self.aside is not None:
            self.lines, self.aside = self.aside, None
            self.row = len(self.lines) - 1
        self.column = 0

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)


class Terminal:
    """Runs a program on this terminal."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: dict[str, str],
        columns: int = 80,
        rows: int = 24,
    ) -> None:
        self.screen = Screen(columns, rows)
        self.code: int | None = None
        self._rest = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.pid, self._leader = pty.fork()
        if self.pid == 0:
            try:
                self._resize(0, columns, rows)
                os.chdir(cwd)
                os.execve(argv[0], list(argv), {"TERM": "xterm-256color", **env})
            finally:
                os._exit(99)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(columns, rows)
        self._resize(self._leader, columns, rows)

    def press(self, keys: str) -> None:
        os.write(self._leader, keys.encode())

    def wait_for(self, seen: str | Callable[[str], bool]) -> str:
        """Until the screen shows it, drawn to the end; returns what it shows."""
        found = seen if callable(seen) else lambda text: seen in text
        deadline = time.monotonic() + DEADLINE
        while not found(self.screen.text):
            assert time.monotonic() < deadline, f"not seen: {seen}\n{self.screen.text}"
            assert self._read(0.1), f"ended without: {seen}\n{self.screen.text}"
            # It may be in the middle of a picture.
            while found(self.screen.text) and self._has_more() and self._read(0):
                assert time.monotonic() < deadline, f"never still\n{self.screen.text}"
        return self.screen.text

    def _has_more(self) -> bool:
        return bool(select.select([self._leader], [], [], SETTLED)[0])

    def wait(self) -> int:
        """Until the program has ended; returns its exit code."""
        deadline = time.monotonic() + DEADLINE
        while self._read(0.1):
            assert time.monotonic() < deadline, f"still runs\n{self.screen.text}"
        return self._reap()

    def hang_up(self) -> int:
        """Close the terminal under the program; returns its exit code."""
        os.close(self._leader)
        self._leader = -1
        return self._reap()

    def close(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()
        if self._leader >= 0:
            os.close(self._leader)

    def settings(self) -> int:
        """The flags that say whether keys are echoed."""
        return int(termios.tcgetattr(self._leader)[3])

    def _reap(self) -> int:
        deadline = time.monotonic() + DEADLINE
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            else:
                assert time.monotonic() < deadline, "still runs"
                time.sleep(0.01)
        return self.code

    def _read(self, seconds: float) -> bool:
        """False once the program has closed its side."""
        if not select.select([self._leader], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self._leader, 65536)
        except OSError:
            return False
        text = self._rest + self._decoder.decode(piece)
        begun = re.search(
            r"\x1b(\[\??[0-9;]*)?\Z", text
        )  # the rest of it comes with the next piece
        end = begun.start() if begun else len(text)
        self.screen.write(text[:end])
        self._rest = text[end:]
        return bool(piece)

    @staticmethod
    def _resize(terminal: int, columns: int, rows: int) -> None:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
