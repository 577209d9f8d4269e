"""What a part of the self-test is given, and how it reports."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from hypervisor.core.records import NamedTuple

Outcome = Literal["held", "violated", "skipped"]
Figures = dict[str, int]


class Violation(Exception):
    """An invariant did not hold."""

    def __init__(self, message: str, replay: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.replay = replay  # repeats the failure, see `simulation`


class Skipped(Exception):
    """The part cannot run on this host; the message says why."""


class Setting(NamedTuple):
    """Where and how long a part runs."""

    folder: Path  # for its files
    new_store: Callable[[], str]  # the path or URL of a fresh, empty store
    kind: Literal["sqlite", "postgres"]
    seed: int
    seconds: float  # it should stop after this long
    bug: str | None = None  # planted into its processes, see `bugs`
    tell: Callable[[str], None] = lambda text: None  # progress
    began: float = 0.0

    def dice(self) -> random.Random:
        return random.Random(self.seed)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.began + self.seconds


class PartResult(NamedTuple):
    part: str
    store: str
    outcome: Outcome
    seed: int
    seconds: float
    figures: Figures
    message: str = ""  # why it was skipped, or what did not hold
    replay: dict[str, Any] | None = None
    bug: str | None = None  # that was planted


def ensure(holds: object, message: str) -> None:
    if not holds:
        raise Violation(message)
