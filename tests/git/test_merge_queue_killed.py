"""The merge queue killed again and again: nothing is lost, nothing is merged twice."""

from __future__ import annotations

from contextlib import closing

import pytest

from hypervisor.selftest.crew import ForkServer
from hypervisor.selftest.merges import LANES, MergeStorm, check

KILLS = 22  # for each mode


@pytest.mark.parametrize("number, mode, strategy", [(n, *lane) for n, lane in enumerate(LANES, 1)])
def test_killed_at_random_moments_nothing_is_lost_or_merged_twice(tmp_path, number, mode, strategy):
    with closing(ForkServer("hypervisor.selftest.merge_job")) as crew:
        lane = MergeStorm(crew, tmp_path, mode, strategy, seed=number)
        lane.rage(0, least=KILLS)
        lane.finish()
    check(lane)
    assert set(lane.moments) == {"any", "intent", "landed"}
