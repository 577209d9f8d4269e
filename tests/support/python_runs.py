"""A store opened from Python, whose supervisor is ended after the test."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hypervisor
from tests.support.ungoverned import UNGOVERNED

DEADLINE = 120.0
CONFIG = f'[store]\ndurability = "relaxed"\n[run]\ngrace = 1\n{UNGOVERNED}'


@contextmanager
def opened(store: str) -> Iterator[hypervisor.Hypervisor]:
    with hypervisor.open(store, relaxed=True) as hv:
        folder = Path(hv.places.data)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "config.toml").write_text(CONFIG)
        try:
            yield hv
        finally:
            end_supervisor(hv)


def end_supervisor(hv: hypervisor.Hypervisor) -> None:
    if pid := hv.launcher.supervisor():
        os.kill(pid, signal.SIGINT)
        deadline = time.monotonic() + DEADLINE
        while hv.launcher.supervisor() is not None:
            assert time.monotonic() < deadline, "the supervisor did not end"
            time.sleep(0.02)
