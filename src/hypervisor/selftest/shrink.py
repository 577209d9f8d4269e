"""Shortening a failing history."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Step = TypeVar("Step")


def shrink(
    steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool], seconds: float
) -> list[Step]:
    """Leave out what the failure does not need: halves first, single steps last."""
    deadline = time.monotonic() + seconds
    kept = list(steps)
    size = max(len(kept) // 2, 1)
    while True:
        start, is_shorter = 0, False
        while start < len(kept):
            if time.monotonic() > deadline:
                return kept
            shorter = kept[:start] + kept[start + size :]
            if fails(shorter):
                kept, is_shorter = shorter, True
            else:
                start += size
        if size == 1 and not is_shorter:
            return kept
        size = max(size // 2, 1)
