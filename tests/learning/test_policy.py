"""How many workers `adaptive` chooses, in worlds whose truth is known."""

from __future__ import annotations

from statistics import mean

import pytest

from hypervisor.learning.evidence import Evidence
from hypervisor.learning.policy import choose, favourite, levels
from hypervisor.learning.posterior import Claim, posterior
from tests.learning.test_estimator import evidence_of
from tests.support.real_runs import lost
from tests.support.workloads import LIMIT, WORLDS, adaptive, best_fixed, efficiency, simulated

SEEDS = range(3)


@pytest.mark.parametrize("name", WORLDS)
class TestWorld:
    """`python -m bench.learn_simulated` shows more of the same."""

    def test_little_is_lost_and_after_twenty_it_is_near_the_best(self, name):
        world, lost, pace = WORLDS[name], [], []
        for seed in SEEDS:
            run, best = simulated(world, 60, adaptive(), seed), best_fixed(world, 60, seed)
            lost.append(run.seconds / best - 1)
            pace.append(best * 40 / 60 / (run.seconds - run.ends[19]))
        assert mean(lost) < 0.2 and max(lost) < 0.25, lost
        assert mean(pace) > 0.88 and min(pace) > 0.8, pace

    def test_what_is_known_helps_the_next_run(self, name):
        world = WORLDS[name]
        known = simulated(world, 120, adaptive(), 1).evidence
        later = simulated(world, 60, adaptive(), 2, evidence=known)
        assert later.seconds < 1.15 * best_fixed(world, 60, 2)


@pytest.mark.parametrize("name", ["lock", "shared lock"])
def test_the_answer_to_a_lock_is_one(name):
    found = [simulated(WORLDS[name], 60, adaptive(), seed, 0.1).best[-1] for seed in SEEDS]
    assert found.count(1) == len(SEEDS), found


@pytest.mark.parametrize(("before", "after"), [("sleep", "lock"), ("sleep", "cpu")])
def test_a_change_of_the_world_is_noticed(before, after):
    run = simulated(WORLDS[before], 160, adaptive(), 3, later=WORLDS[after])
    assert run.evidence.changes >= 1
    assert efficiency(WORLDS[after], run.workers[-1]) > 0.85


def test_what_got_better_is_found_in_time():
    """Alone nothing shows that a lock is gone: now and then it looks again."""
    run = simulated(WORLDS["lock"], 160, adaptive(), 3, later=WORLDS["sleep"])
    assert run.best[-1] == LIMIT


class TestLookingAgain:
    """Whether more pay by now: the cost of looking decides how often."""

    @staticmethod
    def workers(world, alone):
        """How many there shall be after so many alone, in a world that is known."""
        known = evidence_of(world, (1, 2, 4), 30)._replace(level=1, run=alone)
        choice = choose(posterior(known), LIMIT, now=1)
        assert choice.best == 1 and choice.settled == (choice.workers == 1), choice
        return choice.workers

    def test_soon_and_among_many_where_it_costs_nothing(self):
        assert self.workers(WORLDS["lock"], 2) == 4

    def test_seldom_and_among_few_where_more_do_harm(self):
        found = [self.workers(lambda n: n**1.5, alone) for alone in (3, 30, 60)]
        assert found == [1, 1, 2]

    def test_a_lock_that_goes_halfway_costs_less_than_a_quarter(self):
        """After 30 of 60. `python -m bench.learn_simulated` has more seeds."""
        before, after = WORLDS["lock"], WORLDS["sleep"]
        lost = [
            simulated(before, 60, adaptive(), seed, later=after).seconds
            / best_fixed(before, 60, seed, after)
            - 1
            for seed in range(8)
        ]
        assert mean(lost) < 0.2, lost

    def test_a_lock_that_goes_halfway_in_a_real_run(self):
        """Whenever in the search for the best number that is: who queued for the lock among other
        numbers than those that ran must not count."""
        laws = [WORLDS["lock"]] * 30 + [WORLDS["sleep"]] * 30
        found = [lost(laws, adaptive(), seed) for seed in range(12)]
        assert mean(found) < 0.2 and max(found) < 0.25, found


class TestFoundingExamples:
    def test_searches_that_are_nine_times_faster_are_always_parallel(self):
        known = evidence_of(WORLDS["sleep"], (1, 4, 10), 60)
        choice = choose(posterior(known), 10)
        assert choice.workers == 10 and choice.settled
        assert choice.why.startswith("10 at once save ") and choice.why.endswith(" of the time")
        assert posterior(known).benefit(10).mean == pytest.approx(0.9, abs=0.02)

    def test_calls_that_gain_a_tenth_run_one_after_the_other(self):
        known = evidence_of(WORLDS["ten percent"], (1, 2, 4), 150, spread=0.1)
        choice = choose(posterior(known), 4)
        assert choice.workers == 1 and choice.settled
        assert "one after the other" in choice.why and "not worth it" in choice.why

    def test_what_was_only_said_decides_until_more_is_known(self):
        search, call = (choose(posterior(Evidence(), Claim(b)), 4) for b in (0.75, 0.1))
        assert search.workers >= 3 and call.workers == 1
        assert "as was claimed" in search.why and not search.settled


@pytest.mark.parametrize("world", ["lock", "memory", "ten percent"])
def test_who_is_told_too_much_finds_out(world):
    """Begun with as many as was claimed, it never saw what fewer do, and believed on."""
    claim = Claim(0.9)
    for seed in range(3):
        run = simulated(WORLDS[world], 60, adaptive(claimed=claim), seed)
        belief = posterior(run.evidence, claim)
        assert belief.benefit(4).mean < 0.4 and run.best[-1] <= 4, run.workers


class TestChoice:
    def test_within_the_limit(self):
        for limit in (1, 2, 3, 5, 8, 100):
            for name in WORLDS:
                belief = posterior(evidence_of(WORLDS[name], (1, 2, 4), 12))
                assert 1 <= choose(belief, limit).workers <= limit

    def test_first_while_nothing_is_known(self):
        assert choose(posterior(Evidence()), 8, first=2).workers == 2
        assert choose(posterior(Evidence()), 8).workers == 4

    def test_the_number_there_is_stays_if_it_is_as_good(self):
        belief = posterior(evidence_of(WORLDS["cpu"], (1, 2, 3, 4), 80))
        best = favourite(belief, 8)
        assert best in (2, 3)
        assert favourite(belief, 8, now=5 - best) == 5 - best
        assert favourite(belief, 8, now=8) == best

    def test_levels_end_with_the_limit(self):
        assert levels(5) == [1, 2, 3, 4, 5]
        assert levels(10) == [1, 2, 3, 4, 6, 8, 10]
