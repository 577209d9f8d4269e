"""A program in a pseudo-terminal: types text, and waits for what appears."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from pathlib import Path

ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|.)")
DEADLINE = 60.0


class TypedTerminal:
    """The program has the terminal as its controlling one."""

    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str]) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self.program = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**env, "TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._seen = b""

    @property
    def text(self) -> str:
        """Everything that was printed so far, without escape sequences and blanks: programs move
        the cursor instead of printing them."""
        plain = ESCAPES.sub(b"", self._seen).decode("utf-8", "replace")
        return re.sub(r"\s+", "", plain)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str, seconds: float = DEADLINE) -> None:
        assert self.shows(text, seconds), f"{text!r} did not appear in: {self.text[-3000:]}"

    def shows(self, text: str, seconds: float) -> bool:
        """Whether the text appears within this time."""
        wanted, until = re.sub(r"\s+", "", text), time.monotonic() + seconds
        while wanted not in self.text:
            if time.monotonic() > until:
                return False
            self._read(0.2)
        return True

    def settle(self) -> None:
        """Until nothing new is drawn for half a second; some programs draw forever."""
        until = time.monotonic() + 3
        while time.monotonic() < until:
            before = len(self._seen)
            self._read(0.5)
            if len(self._seen) == before:
                return

    def ended(self, seconds: float = DEADLINE) -> int:
        until = time.monotonic() + seconds
        while self.program.poll() is None:
            assert time.monotonic() < until, f"it has not ended: {self.text[-3000:]}"
            self._read(0.2)
        self._read(0)
        return self.program.returncode

    def close(self) -> None:
        """Hangs up, as a closed window does."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def _read(self, seconds: float) -> None:
        while select.select([self._master], [], [], seconds)[0]:
            try:
                data = os.read(self._master, 65_536)
            except OSError:  # the last process has closed the terminal
                return
            self._seen += data
            seconds = 0
