"""What a worker is doing, written where its death cannot take it along.

A line when an attempt starts, a line with the verdict when it ends; emptied
whenever the store has it all. After a kill, whoever finds the worker gone reads
here what had ended (it is settled, not run again), what was running (its
processes are ended first) and, by omission, what had not been started.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.core.places import make_private
from hypervisor.queue.lease import AttemptResult, Usage, Worker, parse_token
from hypervisor.runs.spec import Leftovers

NEW = ".new"
ENCODE = json.JSONEncoder(separators=(",", ":")).encode
PLAIN = ("complete", None, None, None, None)
FLAGS = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


class Journal:
    """One worker's journal. Writes are single calls, so a kill leaves whole lines or none."""

    def __init__(self, runtime: str, worker: Worker, group: str | None) -> None:
        self.path = _path(runtime, worker)
        self._file = -1
        self._first = _line(["group", group])
        self._current = b""

    def starting(self, token: str) -> None:
        """Before the process is started: from here on the attempt counts as begun."""
        self._current = f'["start","{token}"]\n'.encode()
        os.write(self._file, self._current)

    def leader(self, pid: int, start: int) -> None:
        line = f'["leader",{pid},{start}]\n'.encode()
        self._current += line
        os.write(self._file, line)

    def ended(self, verdict: AttemptResult) -> None:
        self._current = b""
        os.write(self._file, _plain_end(verdict) or _line(["end", str(verdict[0]), *verdict[1:]]))

    def clear(self) -> None:
        """The store has everything that had ended; what still runs stays written down.

        The first call makes the file. It is for after the store knows the worker: what one
        that nobody knows of has written, nobody would ever read or remove."""
        if self._file < 0:
            self._file = _made(self.path)
            os.write(self._file, self._first)
        elif self._current:
            self._replace(self._first + self._current)
        else:
            os.ftruncate(self._file, len(self._first))

    def _replace(self, text: bytes) -> None:
        """In one step: at no instant may a running attempt be missing."""
        fresh = _made(self.path + NEW)
        os.write(fresh, text)
        os.rename(self.path + NEW, self.path)
        os.close(self._file)
        self._file = fresh

    def remove(self) -> None:
        os.close(self._file)
        with suppress(OSError):
            os.unlink(self.path)


def remains(runtime: str, worker: Worker) -> Leftovers | None:
    """What a worker that is gone left behind, None if it left no word that makes sense."""
    try:
        with open(_path(runtime, worker), "rb") as file:
            return _understood([json.loads(line) for line in file.read().split(b"\n")[:-1]])
    except (OSError, ValueError, LookupError, TypeError, RecursionError, InvalidInput):
        return None


def forget(runtime: str, worker: Worker) -> None:
    for ending in ("", NEW):  # it may have died while it replaced one by the other
        with suppress(OSError):
            os.unlink(_path(runtime, worker) + ending)


def _understood(lines: list[Any]) -> Leftovers:
    group, running, leader = None, None, None
    verdicts: dict[str, AttemptResult] = {}
    for line in lines:
        if not isinstance(line, list):
            raise TypeError(line)
        kind, *values = line
        if kind == "group":
            group = None if values[0] is None else _text(values[0])
        elif kind == "start":
            running, leader = str(parse_token(_text(values[0]))), None
        elif kind == "leader":
            leader = (int(values[0]), int(values[1]))
        elif kind == "end":
            verdicts[values[0]] = _verdict(values)
            running = None if running == values[0] else running
    return Leftovers(tuple(verdicts.values()), running, leader, group)


def _made(path: str) -> int:
    make_private(os.path.dirname(path))  # a logout may have removed it
    return os.open(path, FLAGS | os.O_TRUNC, 0o600)


def _path(runtime: str, worker: Worker) -> str:
    return os.path.join(runtime, f"{worker.pid}.{worker.pid_start}.journal")


def _line(values: list[Any]) -> bytes:
    return ENCODE(values).encode() + b"\n"


def _plain_end(verdict: AttemptResult) -> bytes:
    """The line of a short command that succeeded: by the thousand, and the same each time but
    for the token and four numbers. b"" for any other."""
    usage = verdict.usage
    if usage is None or verdict[1:6] != PLAIN or verdict.receipts or verdict.proposals:
        return b""
    numbers = ",".join(["null" if number is None else str(number) for number in usage])
    return (
        f'["end","{verdict.token}","complete",null,null,null,null,[{numbers}],[],false]\n'.encode()
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _verdict(values: list[Any]) -> AttemptResult:
    token, event, result, reason, unblock, retry_at, usage, receipts, *rest = values
    proposals = bool(rest and rest[0])  # which earlier versions did not write
    cost = None if usage is None else Usage(*(None if n is None else int(n) for n in usage))
    evidence = tuple(_text(line) for line in receipts)
    return AttemptResult(
        parse_token(_text(token)),
        event,
        result,
        reason,
        unblock,
        retry_at,
        cost,
        evidence,
        proposals,
    )
