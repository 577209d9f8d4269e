"""Slows down a client that shows tokens which do not hold, and reports it.

A token cannot be guessed; a client that tries is slow and leaves a trace. Claims end, so a few
refusals are normal and cost nothing. A call with a token that holds never waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PAUSE = 1.0  # seconds for each refused token …
FREE = 20  # … beyond this many at a time
MAX_LENGTH = 10.0  # seconds that one call waits
MAX_COUNT = 60.0  # seconds that all of them together put off the next refusal


class Refusals:
    """Those of one server. May be called from any thread."""

    def __init__(self, report: Callable[[int], None] = lambda total: None) -> None:
        self._report = report
        self._lock = threading.Lock()
        self._total = 0
        self._reported = 0
        self._due = float("-inf")

    def add(self, refused: int, now: float | None = None) -> float:
        """Count refused tokens. Returns the seconds that their caller has to wait."""
        at = time.monotonic() if now is None else now
        with self._lock:
            self._total += refused
            self._due = min(max(self._due, at - FREE * PAUSE) + refused * PAUSE, at + MAX_COUNT)
            wait = min(max(self._due - at, 0.0), MAX_LENGTH)
            news = self._total if wait and self._total >= 10 * self._reported else 0
            self._reported = news or self._reported
        if news:
            self._report(news)
        return wait
