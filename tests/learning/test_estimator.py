"""Estimating the benefit of parallelism from durations, with workloads whose law is known."""

from __future__ import annotations

import random
from math import log, sqrt
from statistics import mean

import pytest

from hypervisor.learning import evidence
from hypervisor.learning.evidence import Evidence, add_attempt, add_sample, is_in_doubt
from hypervisor.learning.policy import MIN_SAVING
from hypervisor.learning.posterior import MIN_CPU_SHARE, Claim, posterior
from tests.support.workloads import WORLDS, any_law


def evidence_of(world, levels, count, seed=0, spread=0.15, known=None, alone=10.0):
    rnd, found = random.Random(seed), known or Evidence()
    for index in range(count):
        n = levels[index % len(levels)]
        found = add_sample(found, n, alone * world(n) * rnd.lognormvariate(0, spread))
    return found


class TestBelief:
    @pytest.mark.parametrize("name", WORLDS)
    def test_comes_close_to_the_truth(self, name):
        """Within a fifth: a choice based on it loses no more than that."""
        world = WORLDS[name]
        belief = posterior(evidence_of(world, (1, 2, 4, 8), 60))
        for n in (2, 4, 8):
            assert belief.throughput(n).mean == pytest.approx(n / world(n), rel=0.2)

    def test_the_interval_shrinks_with_evidence(self):
        few, many = (
            posterior(evidence_of(WORLDS["cpu"], (1, 4), n)).throughput(4) for n in (4, 60)
        )
        assert many.high - many.low < few.high - few.low

    def test_only_ratios_count(self):
        """Whether they take a minute or a millisecond is the same."""
        slow, fast = (
            posterior(evidence_of(WORLDS["usl"], (1, 4), 20, alone=alone)).expected(4)
            for alone in (60.0, 0.002)
        )
        assert slow == pytest.approx(fast)

    def test_without_evidence_everything_is_possible(self):
        """From eight workers that do no more than one to eight that hardly slow each other down."""
        low, high = posterior(Evidence()).throughput(8)[1:]
        assert low <= 1 and high > 8 * 3 / 4

    def test_one_is_one(self):
        assert posterior(Evidence()).throughput(1) == pytest.approx((1, 1, 1))
        assert posterior(Evidence()).benefit(1) == pytest.approx((0, 0, 0))


def test_intervals_cover_the_truth_as_often_as_they_say():
    """Laws that are not on the grid; nine of ten intervals must contain the true value, after
    many samples as often as after few. `python -m bench.learn_simulated` tries more."""
    rnd, held = random.Random(7), dict[int, list[bool]]({12: [], 40: []})
    worlds = 100  # after each number of samples
    luck = 3 * sqrt(0.9 * 0.1 / worlds)  # three standard deviations of such a share
    for seed in range(2 * worlds):
        law, count = any_law(rnd), (12, 40)[seed % 2]
        belief = posterior(evidence_of(law, (8, 2, 4, 1), count, seed, (0.1, 0.3)[seed // 2 % 2]))
        for n in (2, 4, 8):
            _, low, high = belief.throughput(n)
            held[count].append(low <= n / law(n) <= high)
    for each in held.values():
        assert mean(each) == pytest.approx(0.9, abs=luck)


class TestFollowed:
    def test_newcomers_have_not_waited_for_all_the_others(self):
        """Four attempts that begin together at a lock: only the fourth waits as long as later ones
        will."""
        known = Evidence(level=1, run=9)
        for seconds in (1, 2, 3):
            known = add_attempt(known, 4, seconds, at_first=seconds)
        assert known.samples == 0
        assert add_attempt(known, 4, 4.0, at_first=4).levels[4].mean == pytest.approx(log(4))

    def test_who_queued_among_four_says_nothing_of_six(self):
        """Two more start while four wait for a lock: the four do not wait longer because of them,
        although six ran for most of the time."""
        known = Evidence(level=4, run=9)
        for at_once in (4.8, 5.65):
            known = add_attempt(known, at_once, 4.0, at_first=4)
        known = add_attempt(known, 6, 4.5, at_first=5)
        assert known.samples == 0
        assert add_attempt(known, 6, 6.0, at_first=6).levels[6].mean == pytest.approx(log(6))

    def test_a_number_that_changed_in_the_meantime_says_nothing(self):
        assert add_attempt(Evidence(level=2, run=5), 2.4, 1.0).samples == 0


class TestCpu:
    def test_no_number_is_faster_than_the_cores(self):
        """Two cores, one CPU second per attempt: only four were observed, but eight cannot do
        more."""
        known = Evidence()
        for _ in range(4):
            known = add_sample(known, 4, 2.0, cores=0.5)
        unbound = Evidence({4: known.levels[4]._replace(cores=0.0)})
        least = 0.5  # seconds an attempt: one CPU second on two cores
        assert min(posterior(unbound).times(8)) < least
        assert min(posterior(known).times(8)) >= least * MIN_CPU_SHARE


class TestClaims:
    def test_count_while_there_is_nothing_better(self):
        assert posterior(Evidence(), Claim(0.7)).benefit(4).mean == pytest.approx(0.7, abs=0.1)
        assert posterior(Evidence(), Claim(0.0)).benefit(4).mean == pytest.approx(0, abs=0.15)
        assert posterior(Evidence(), Claim(-0.5)).benefit(4).mean < 0

    def test_evidence_overrides_them(self):
        """As close to the true value as the choice between one and several requires."""
        known = evidence_of(WORLDS["lock"], (1, 2, 4), 60)
        assert posterior(known, Claim(0.75)).benefit(4).mean == pytest.approx(0, abs=MIN_SAVING)
        known = evidence_of(WORLDS["sleep"], (1, 2, 4), 60)
        assert posterior(known, Claim(0.0)).benefit(4).mean == pytest.approx(0.75, abs=MIN_SAVING)


class TestChange:
    def test_is_noticed_after_a_few(self):
        before = evidence_of(WORLDS["sleep"], (8,), 40)
        after = evidence_of(WORLDS["lock"], (8,), 3, known=before)
        assert (before.changes, after.changes) == (0, 1)
        assert not after.levels

    def test_what_ran_through_it_counts_for_neither_world(self):
        known = evidence_of(WORLDS["sleep"], (8,), 40)
        known = evidence_of(WORLDS["lock"], (8,), 3, known=known)._replace(level=8)
        for _ in range(8):
            known = add_attempt(known, 8, 30.0)
        assert not known.levels
        assert add_attempt(known, 8, 80.0).levels[8].mean == pytest.approx(log(80))

    def test_what_is_usual_at_another_level_says_nothing_of_this(self):
        """With one worker, nothing shows that a lock is gone: only the rare checks with two
        differ."""
        known = evidence_of(WORLDS["lock"], (1, 2), 40)
        assert evidence_of(WORLDS["lock"], (1,), 9, known=known).changes == 0
        assert evidence_of(WORLDS["sleep"], (2,), 3, known=known).changes == 1

    def test_what_a_look_has_just_shown_is_of_the_new_world(self):
        """The check with two has already provided the samples for two."""
        known = evidence_of(WORLDS["lock"], (1, 2), 40)._replace(level=1, run=9)
        for _ in range(4):
            known = add_attempt(known, 2, 10.0)
        assert known.changes == 1
        assert known.levels[2].mean == pytest.approx(log(10)) and known.run == 4

    def test_those_in_doubt_do_not_spoil_what_they_are_held_against(self, monkeypatch):
        """If durations vary a lot, it takes more than a few samples to decide, and these must
        not count as normal until then: this way more changes are detected."""

        def noticed():
            found = 0
            for seed in range(100):
                known = evidence_of(WORLDS["lock"], (2,), 6, seed, 0.3)
                known = evidence_of(WORLDS["lock"], (1,), 15, 100 + seed, 0.3, known)
                known = evidence_of(WORLDS["sleep"], (2,), 8, 200 + seed, 0.3, known)
                found += known.changes > 0
            return found

        kept_apart = noticed()
        monkeypatch.setattr(evidence, "LONGER", evidence.FRESH)
        assert kept_apart > noticed()

    def test_nobody_is_quicker_among_more(self):
        """Three were never observed, but two took twice as long: the lock is gone."""
        known = evidence_of(WORLDS["lock"], (1, 2), 40)
        assert evidence_of(WORLDS["lock"], (3,), 4, known=known).changes == 0
        assert evidence_of(WORLDS["sleep"], (3,), 4, known=known).changes == 1

    def test_two_larger_numbers_tell_what_a_smaller_one_takes_at_least(self):
        """Nor were fewer than three; but an additional worker never costs less than the one
        before."""
        known = evidence_of(WORLDS["lock"], (4, 6), 40)
        assert evidence_of(WORLDS["lock"], (3,), 4, known=known).changes == 0
        assert evidence_of(WORLDS["sleep"], (3,), 4, known=known).changes == 1

    def test_one_may_be_of_another_world(self):
        """That is not a change yet, but a reason to stay at this number."""
        known = evidence_of(WORLDS["lock"], (1, 4), 40)
        assert not is_in_doubt(add_sample(known, 4, 40.0))
        known = add_sample(add_sample(known, 4, 10.0), 4, 40.0)
        assert is_in_doubt(known) and not known.changes

    def test_those_of_another_world_do_not_hide_it(self):
        """Outliers count for little, or everything would look normal afterwards."""
        known = evidence_of(WORLDS["lock"], (1, 4), 40)
        known = evidence_of(WORLDS["lock"], (1,), 9, known=add_sample(known, 4, 10.0))
        assert evidence_of(WORLDS["sleep"], (4,), 3, known=known).changes == 1

    def test_luck_is_seldom_taken_for_one(self):
        """Of types that vary by half, one in thirty within a hundred samples; twice as many
        would not be chance."""
        found, types = 0, 150
        for seed in range(types):
            rnd, known = random.Random(seed), Evidence()
            law = any_law(rnd)
            while known.samples < 100 and not known.changes:
                n = rnd.choice((1, 2, 3, 4, 6, 8))
                for _ in range(rnd.randint(n, n + 8)):
                    known = add_attempt(known, n, law(n) * rnd.lognormvariate(0, 0.5))
            found += known.changes > 0
        assert found <= 2 * types / 30

    def test_one_that_stands_out_is_not_one(self):
        known = evidence_of(WORLDS["sleep"], (8,), 40)
        known = add_sample(known, 8, 500.0)
        known = evidence_of(WORLDS["sleep"], (8,), 10, known=known)
        assert known.changes == 0

    def test_old_samples_fade(self):
        known = evidence_of(WORLDS["cpu"], (4,), 10)
        weight = known.levels[4].weight
        known = evidence_of(WORLDS["cpu"], (2,), 50, known=known)
        assert known.levels[4].weight < weight / 2  # after fifty that it was not among
        assert 4 not in evidence_of(WORLDS["cpu"], (2,), 600, known=known).levels

    def test_durations_of_nothing_do_no_harm(self):
        known = add_sample(add_sample(Evidence(), 0.0, 0.0), 10_000, 1e9)
        assert posterior(known).throughput(2).mean > 0
