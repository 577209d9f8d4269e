"""What parallelism is worth, told from durations: against worlds whose truth is known."""

from __future__ import annotations

import random
from math import exp, log

import pytest

from hypervisor.domain.scaling import Claimed, Evidence, believed, grid, seen
from tests.support.workloads import WORLDS


def evidence_of(world, levels, count, seed=0, spread=0.15, known=None, alone=10.0):
    rnd, found = random.Random(seed), known or Evidence()
    for index in range(count):
        n = levels[index % len(levels)]
        found = seen(found, n, alone * world(n) * rnd.lognormvariate(0, spread))
    return found


class TestBelief:
    @pytest.mark.parametrize("name", WORLDS)
    def test_comes_close_to_the_truth(self, name):
        world = WORLDS[name]
        belief = believed(evidence_of(world, (1, 2, 4, 8), 60))
        for n in (2, 4, 8):
            assert belief.throughput(n).mean == pytest.approx(n / world(n), rel=0.2)

    def test_the_interval_shrinks_with_evidence(self):
        few, many = (believed(evidence_of(WORLDS["cpu"], (1, 4), n)).throughput(4) for n in (4, 60))
        assert many.high - many.low < few.high - few.low

    def test_only_ratios_count(self):
        """Whether they take a minute or a millisecond is the same."""
        slow, fast = (
            believed(evidence_of(WORLDS["usl"], (1, 4), 20, alone=alone)).expected(4)
            for alone in (60.0, 0.002)
        )
        assert slow == pytest.approx(fast)

    def test_without_evidence_everything_is_possible(self):
        low, high = believed(Evidence()).throughput(8)[1:]
        assert low <= 1 and high > 6

    def test_one_is_one(self):
        assert believed(Evidence()).throughput(1) == pytest.approx((1, 1, 1))
        assert believed(Evidence()).benefit(1) == pytest.approx((0, 0, 0))


def test_intervals_cover_the_truth_as_often_as_they_say():
    """Worlds drawn from what is thought possible; nine of ten intervals must hold the truth."""
    rnd, held, total = random.Random(7), 0, 0
    weights = [exp(point.log_prior) for point in grid()]
    for seed, truth in enumerate(rnd.choices(grid(), weights, k=150)):
        belief = believed(evidence_of(truth.ratio, (8, 2, 4, 1), 10 + seed % 15, seed))
        for n in (2, 4, 8):
            low, high = belief.throughput(n)[1:]
            held += low - 1e-9 <= n / truth.ratio(n) <= high + 1e-9
            total += 1
    assert 0.87 <= held / total <= 0.99


class TestClaims:
    def test_count_while_there_is_nothing_better(self):
        assert believed(Evidence(), Claimed(0.7)).benefit(4).mean == pytest.approx(0.7, abs=0.1)
        assert believed(Evidence(), Claimed(0.0)).benefit(4).mean == pytest.approx(0, abs=0.15)
        assert believed(Evidence(), Claimed(-0.5)).benefit(4).mean < 0

    def test_evidence_overrides_them(self):
        known = evidence_of(WORLDS["lock"], (1, 2, 4), 60)
        assert believed(known, Claimed(0.75)).benefit(4).mean < 0.1
        known = evidence_of(WORLDS["sleep"], (1, 2, 4), 60)
        assert believed(known, Claimed(0.0)).benefit(4).mean > 0.6


class TestChange:
    def test_is_noticed_after_a_few(self):
        before = evidence_of(WORLDS["sleep"], (8,), 40)
        after = evidence_of(WORLDS["lock"], (8,), 3, known=before)
        assert (before.changes, after.changes) == (0, 1)
        assert after.levels[8].weight == 3
        assert after.levels[8].mean == pytest.approx(log(80), abs=0.3)

    def test_one_that_stands_out_is_not_one(self):
        known = evidence_of(WORLDS["sleep"], (8,), 40)
        known = seen(known, 8, 500.0)
        known = evidence_of(WORLDS["sleep"], (8,), 10, known=known)
        assert known.changes == 0

    def test_old_samples_fade(self):
        known = evidence_of(WORLDS["cpu"], (4,), 10)
        weight = known.levels[4].weight
        known = evidence_of(WORLDS["cpu"], (2,), 50, known=known)
        assert known.levels[4].weight < 0.6 * weight
        assert 4 not in evidence_of(WORLDS["cpu"], (2,), 600, known=known).levels

    def test_durations_of_nothing_do_no_harm(self):
        known = seen(seen(Evidence(), 0.0, 0.0), 10_000, 1e9)
        assert believed(known).throughput(2).mean > 0
