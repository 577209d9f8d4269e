"""Once a day, the supervisor starts a process that deletes what is too old."""

from __future__ import annotations

import os
import time

import pytest

import hypervisor
from hypervisor.git.upkeep import CLEAN_LOOK_MS, CLEAN_MS, CLEANED, LOOK_MS, Upkeep


class Launcher:
    def __init__(self):
        self.cleaners = 0

    def start_cleaner(self):
        self.cleaners += 1


@pytest.fixture
def hv(tmp_path, monkeypatch):
    with hypervisor.open(str(tmp_path / ".hypervisor"), relaxed=True) as hv:
        monkeypatch.setattr(hv, "launcher", Launcher())
        yield hv


def test_a_day_after_the_last_time(hv):
    start = hv.now()
    upkeep = Upkeep(hv)
    for minute in range(3 * 24 * 60):
        upkeep.tick(start + minute * CLEAN_LOOK_MS)
    assert hv.launcher.cleaners == 2


def test_by_supervisors_that_exit_within_seconds(hv, monkeypatch):
    start = hv.now()
    for hours in (0, 1, 23, 25, 26, 48, 50):
        monkeypatch.setattr(hv, "now", lambda at=start + hours * CLEAN_MS // 24: at)
        upkeep = Upkeep(hv)
        upkeep.tick(hv.now() + LOOK_MS)
        upkeep.last_look()
    assert hv.launcher.cleaners == 2  # after 25 and 50 hours


def test_a_clock_that_was_wrong_does_not_delay_it_for_ever(hv):
    upkeep = Upkeep(hv)
    upkeep.last_look()
    future = time.time() + 1_000_000
    os.utime(os.path.join(hv.places.data, CLEANED), (future, future))
    upkeep.last_look()
    upkeep.last_look()
    assert hv.launcher.cleaners == 1
