"""Writes an agent's output from its pipe to a file, without secrets.

Each complete line is then passed to `on_line`. An endless line takes bounded memory: its pieces are
written to the file, but it is not passed on.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from urllib.parse import quote, urlsplit

from hypervisor.agents.secrets import HIDDEN, MIN_LENGTH, cleaned
from hypervisor.queue.hide_tokens import MAX_TOKEN_LENGTH, TOKEN
from hypervisor.queue.task import Json
from hypervisor.runs.processes.commands import WRITE

HELD = 1 << 16  # bytes of an unfinished line that are held back
MAX_LINE_LENGTH = 8 << 20
PIECE = 1 << 16
MAX_PIECES = 64  # at once, so that other work is not starved
PIPE_SIZE = 1 << 20
LEVELS = 4  # of JSON: a report within a message within a line of the stream


class Redactor:
    """Removes secrets from a byte stream, even if a secret arrives in two pieces."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        forms = sorted(
            {form for secret in secrets for form in forms_of(secret)}, key=len, reverse=True
        )
        patterns = [re.escape(form) for form in forms]
        self._pattern = re.compile("|".join([*patterns, TOKEN]).encode())
        self._longest = max([MAX_TOKEN_LENGTH + 1, *(len(form.encode()) for form in forms)])
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """The part that is clean so far. No form of a secret spans two lines."""
        pending = self._held + data
        cut = pending.rfind(b"\n") + 1
        if len(pending) - cut > HELD + self._longest:
            return self._release(pending)
        self._held = pending[cut:]
        return self._clean(pending[:cut])

    def end(self) -> bytes:
        pending, self._held = self._held, b""
        return self._clean(pending)

    def clean(self, text: str) -> str:
        return self._clean(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def clean_more(self, text: str, before: str) -> str:
        """Clean a text that has grown: searching all of it for each new line would be slow."""
        if not text.startswith(before):
            return self.clean(text)
        begin = max(len(before) - self._longest, 0)  # a secret may have come in two pieces
        return text[:begin] + self.clean(text[begin:])

    def clean_value(self, value: Json) -> Json:
        """JSON without secrets in any of its strings."""
        return cleaned(value, self.clean)

    def _release(self, pending: bytes) -> bytes:
        """Release an unfinished line, except for a tail in which a secret could begin."""
        keep = len(pending) - self._longest
        for match in self._pattern.finditer(pending):
            if match.start() < keep < match.end():
                keep = match.start()
                break
        self._held = pending[keep:]
        return self._clean(pending[:keep])

    def _clean(self, data: bytes) -> bytes:
        return self._pattern.sub(_hide, data)


class TranscriptWriter:
    """The file of an attempt and the pipes that feed it."""

    def __init__(self, path: str, secrets: Collection[str], on_line: Callable[[str], None]) -> None:
        self._file = os.open(path, WRITE | os.O_CLOEXEC, 0o600)
        self._secrets, self._on_line = secrets, on_line

    def pipe(self) -> tuple[Channel, int]:
        """A new pipe: our end, and the one to pass to the agent and close."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reading, False)
        with suppress(OSError, AttributeError):
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        return Channel(reading, Redactor(self._secrets), self._write, self._on_line), writing

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, data: bytes) -> None:
        with suppress(OSError):  # a full disk: the agent's work matters more than its transcript
            while data:
                data = data[os.write(self._file, data) :]


class Channel:
    """The reading end of one pipe."""

    def __init__(
        self,
        handle: int,
        redactor: Redactor,
        write: Callable[[bytes], None],
        on_line: Callable[[str], None],
    ) -> None:
        self._handle, self._redactor = handle, redactor
        self._write, self._on_line = write, on_line
        self._line = bytearray()
        self._skips = False

    def fileno(self) -> int:
        return self._handle

    def read(self) -> bool:
        """Read available bytes without waiting. False once the other end is closed."""
        for _ in range(MAX_PIECES):
            try:
                data = os.read(self._handle, PIECE)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._take(self._redactor.feed(data))
        return True

    def close(self) -> None:
        if self._handle >= 0:
            self._take(self._redactor.end())
            if self._line and not self._skips:
                self._on_line(self._line.decode("utf-8", "replace"))
            self._line.clear()
            os.close(self._handle)
            self._handle = -1

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._write(data)
        *lines, last = data.split(b"\n")
        for line in lines:
            self._line += line
            if not self._skips:
                self._on_line(self._line.decode("utf-8", "replace"))
            self._line.clear()
            self._skips = False
        if not self._skips:
            self._line += last
        if len(self._line) > MAX_LINE_LENGTH:
            self._line.clear()
            self._skips = True


def secrets_in(values: Collection[str]) -> set[str]:
    """The values, and the passwords in those that are URLs."""
    secrets = set(values)
    for value in values:
        with suppress(ValueError):
            secrets.add(urlsplit(value).password or "")
    return secrets - {""}


def forms_of(secret: str) -> set[str]:
    """The forms in which a secret may be printed: line by line, in nested JSON, in a URL."""
    lines = {line.strip() for line in secret.splitlines()} | {secret.strip()}
    forms = set()
    for text in lines:
        forms |= {quote(text, safe=""), text.replace("/", "\\/")}
        for ascii_only in (True, False):
            form = text
            for _ in range(LEVELS):
                forms.add(form)
                form = json.dumps(form, ensure_ascii=ascii_only)[1:-1]
    return {form for form in forms if len(form) >= MIN_LENGTH and "\n" not in form}


def _hide(match: re.Match[bytes]) -> bytes:
    claim = match.group("claim")
    return HIDDEN.encode() if claim is None else claim + "…".encode()
