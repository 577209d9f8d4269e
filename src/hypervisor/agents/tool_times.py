"""When an agent called its tools, for traces: a file beside its output, only names and times.

Streams say in which order calls and results come, but not when, so that is noted as it is read.
Trouble with the file is ignored: the work is more important.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

from hypervisor.agents.stream_events import Event, ToolCall, ToolResult
from hypervisor.core.records import NamedTuple

MAX_CALLS = 10_000  # of an attempt
MAX_NAME_LENGTH = 100


class ToolTime(NamedTuple):
    """A call of a tool, in milliseconds; `ended_at` is None if no result came."""

    name: str
    started_at: int
    ended_at: int | None
    failed: bool = False


class ToolTimes:
    """Notes the calls of one attempt."""

    def __init__(self, path: str) -> None:
        self._path, self._noted = path, 0

    def note(self, events: Iterable[Event], now: int) -> None:
        for event in events:
            if isinstance(event, ToolCall):
                self._write([now, event.name[:MAX_NAME_LENGTH]])
            elif isinstance(event, ToolResult):
                self._write([now, bool(event.failed)])

    def _write(self, entry: list[object]) -> None:
        self._noted += 1
        if self._noted > 2 * MAX_CALLS:
            return
        with suppress(OSError), open(self._path, "a", encoding="utf-8", errors="replace") as file:
            file.write(json.dumps(entry) + "\n")


def tool_times(text: str) -> list[ToolTime]:
    """The calls in the content of such a file. Results are taken in the order of the calls."""
    calls: list[ToolTime] = []
    open_calls: list[int] = []
    for line in text.splitlines():
        try:
            at, value = json.loads(line)
        except (ValueError, TypeError):
            continue  # cut off by a crash
        if isinstance(value, str):
            open_calls.append(len(calls))
            calls.append(ToolTime(value, at, None))
        elif open_calls:
            first = open_calls.pop(0)
            calls[first] = calls[first]._replace(ended_at=at, failed=value)
    return calls
