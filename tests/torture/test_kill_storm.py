"""Workers are killed at random the whole time: everything still ends, each task exactly once."""

from __future__ import annotations

import time

import pytest

from hypervisor.selftest import kill_storm
from hypervisor.selftest.part import Setting

SECONDS = 5


@pytest.mark.parametrize("k", [1, 4])
def test_kill_storm(store, tmp_path, long, k):
    setting = Setting(
        tmp_path,
        lambda: store.where,
        store.kind,
        seed=20261115 + k,
        seconds=60 if long else SECONDS,
        began=time.monotonic(),
    )
    figures = kill_storm.run(setting, per_claim=k)
    print(f"{store.kind} k={k}: {figures}")
    assert figures["kills"] >= kill_storm.KILLS
    assert figures["reruns"] and figures["claims"] >= figures["tasks"] > 100
