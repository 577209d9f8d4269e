"""Signals that end a process: the first one drains, the second one stops.

A worker stops on SIGINT and drains on every SIGTERM: a new supervisor cannot know what the previous
one has sent.
"""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypervisor.core.file_watch import FileWatch


class Signals:
    """`asked` is "", "drain" or "stop"; any signal wakes a wait on `fileno`."""

    def __init__(self, first_stops: tuple[signal.Signals, ...] = ()) -> None:
        self.asked = ""
        self._first_stops = first_stops
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)

    def wake_for_children(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def fileno(self) -> int:
        return self._reading

    def clear(self) -> None:
        os.read(self._reading, 512)

    def wait(self, seconds: float, watch: FileWatch | None = None) -> bool:
        """Until a signal arrives, something watched changes (True), or the time is over."""
        sources: list[Signals | FileWatch] = [self, watch] if watch else [self]
        readable, _, _ = select.select(sources, [], [], seconds)
        for source in readable:
            source.clear()
        return watch in readable

    def _signalled(self, number: int, _: object) -> None:
        stops = number in self._first_stops if self._first_stops else bool(self.asked)
        self.asked = "stop" if stops or self.asked == "stop" else "drain"
