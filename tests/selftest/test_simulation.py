"""The simulation: planted bugs are found, and histories that once failed hold."""

from __future__ import annotations

import time

import pytest

from hypervisor.selftest import simulation
from hypervisor.selftest.part import Setting, Violation


@pytest.fixture
def setting(store, tmp_path):
    return Setting(
        tmp_path, lambda: store.where, store.kind, seed=1, seconds=2, began=time.monotonic()
    )


def test_it_holds(setting):
    figures = simulation.run(setting)
    assert figures["histories"] >= 1 and figures["steps"] >= simulation.STEPS


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
@pytest.mark.parametrize("bug", ["no-fence", "no-sync", "lost-update"])
def test_a_planted_bug_is_found_and_its_history_shortened(setting, bug):
    with pytest.raises(Violation) as found:
        simulation.run(setting._replace(bug=bug, seconds=60))
    saved = found.value.replay or {}
    assert len(saved["steps"]) < simulation.STEPS
    with pytest.raises(Violation, match=r"step \d+"):
        simulation.replay(saved, setting)
    simulation.replay({**saved, "bug": None}, setting)


FAILED_SYNC = [
    # What follows a change that the disk did not take was lost with it.
    [["fail_sync"], ["add", 189, 352], ["add", 297, 71], ["cut"]],
    # Copying the log into the file was not enough: the old log was played again.
    [["fail_sync"], ["add", 796, 512], ["add", 984, 245], ["cut"]],
    [["fail_sync"], ["claim", 289, 656, 670], ["fail_sync"], ["add", 630, 366], ["cut"]],
]


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
@pytest.mark.parametrize("steps", FAILED_SYNC)
def test_nothing_acknowledged_is_lost_after_a_failed_sync(setting, steps):
    for seed in range(6):  # each leaves something else on the disk
        simulation.replay({"seed": seed, "steps": steps}, setting)
