"""The register of acts, and what acts have in common. An act returns its exit code."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from tests.support.standins.run import Run

FOR_EVER = 3600.0
ACTS: dict[str, Callable[[Run], int | None]] = {}


def act(function: Callable[[Run], int | None]) -> Callable[[Run], int | None]:
    ACTS[function.__name__] = function
    return function


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)


def write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]
