"""The journal of a worker, which survives the worker.

It gets a line when an attempt starts and a line with the result when it ends, and is emptied
whenever the store has all results. After a kill, recovery reads here what had ended (it is settled,
not run again), what was running (its processes are ended first) and, by omission, what had not been
started.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.core.places import make_private
from hypervisor.queue.lease import AttemptResult, Leftovers, Usage, Worker, parse_token

NEW = ".new"
ENCODE = json.JSONEncoder(separators=(",", ":")).encode
PLAIN = ("complete", None, None, None, None)
FLAGS = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


class Journal:
    """Every line is a single write, so a kill leaves no partial lines."""

    def __init__(self, runtime: str, worker: Worker, group: str | None) -> None:
        self.path = _path(runtime, worker)
        self._file = -1
        self._first = _line(["group", group])
        self._current = b""

    def starting(self, token: str) -> None:
        """Before the process is started: from now on the attempt counts as started."""
        self._current = f'["start","{token}"]\n'.encode()
        os.write(self._file, self._current)

    def leader(self, pid: int, start: int) -> None:
        line = f'["leader",{pid},{start}]\n'.encode()
        self._current += line
        os.write(self._file, line)

    def ended(self, result: AttemptResult) -> None:
        self._current = b""
        os.write(self._file, _plain_end(result) or _line(["end", str(result[0]), *result[1:]]))

    def clear(self) -> None:
        """Remove stored results; the running attempt stays.

        The first call creates the file. The worker must be registered by then: the journal of an
        unknown worker would never be read or removed."""
        if self._file < 0:
            self._file = _create(self.path)
            os.write(self._file, self._first)
        elif self._current:
            self._replace(self._first + self._current)
        else:
            os.ftruncate(self._file, len(self._first))

    def _replace(self, text: bytes) -> None:
        """Atomically: the running attempt must never be missing."""
        fresh = _create(self.path + NEW)
        os.write(fresh, text)
        os.rename(self.path + NEW, self.path)
        os.close(self._file)
        self._file = fresh

    def remove(self) -> None:
        os.close(self._file)
        with suppress(OSError):
            os.unlink(self.path)


def remains(runtime: str, worker: Worker) -> Leftovers | None:
    """The journal of a dead worker, None if it is missing or invalid."""
    try:
        with open(_path(runtime, worker), "rb") as file:
            return _parse([json.loads(line) for line in file.read().split(b"\n")[:-1]])
    except (OSError, ValueError, LookupError, TypeError, RecursionError, InvalidInput):
        return None


def forget(runtime: str, worker: Worker) -> None:
    for ending in ("", NEW):  # it may have died while replacing it
        with suppress(OSError):
            os.unlink(_path(runtime, worker) + ending)


def _parse(lines: list[Any]) -> Leftovers:
    group, running, leader = None, None, None
    results: dict[str, AttemptResult] = {}
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
            results[values[0]] = _parse_result(values)
            running = None if running == values[0] else running
    return Leftovers(tuple(results.values()), running, leader, group)


def _create(path: str) -> int:
    make_private(os.path.dirname(path))  # a logout may have removed it
    return os.open(path, FLAGS | os.O_TRUNC, 0o600)


def _path(runtime: str, worker: Worker) -> str:
    return os.path.join(runtime, f"{worker.pid}.{worker.pid_start}.journal")


def _line(values: list[Any]) -> bytes:
    return ENCODE(values).encode() + b"\n"


def _plain_end(result: AttemptResult) -> bytes:
    """The line for a plain success, formatted without JSON for speed; b"" for any other result."""
    usage = result.usage
    if usage is None or result[1:6] != PLAIN or result.receipts or result.proposals:
        return b""
    numbers = ",".join(["null" if number is None else str(number) for number in usage])
    return (
        f'["end","{result.token}","complete",null,null,null,null,[{numbers}],[],false]\n'.encode()
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _parse_result(values: list[Any]) -> AttemptResult:
    token, event, result, reason, unblock, retry_at, usage, receipts, *rest = values
    proposals = bool(rest and rest[0])  # not written by earlier versions
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
