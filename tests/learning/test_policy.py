"""How many workers `adaptive` chooses for workloads whose law is known."""

from __future__ import annotations

from statistics import mean

import pytest

from hypervisor.learning.evidence import Evidence
from hypervisor.learning.policy import MAX_RECHECK_COST, MIN_SAVING, choose, favourite, levels
from hypervisor.learning.posterior import Claim, posterior
from tests.learning.test_estimator import evidence_of
from tests.support.real_runs import lost
from tests.support.workloads import LIMIT, WORLDS, adaptive, best_fixed, efficiency, simulated

SEEDS = range(3)
TASKS = 60
FINDING_OUT = 20  # attempts: a third of a run, and all that finding out may cost of it
# What it achieves once it has settled, as a share of the best: it may lose `MIN_SAVING` by running
# one at a time, and `MAX_RECHECK_COST` by checking again.
NEAR = 1 - MIN_SAVING - MAX_RECHECK_COST


@pytest.mark.parametrize("name", WORLDS)
class TestWorld:
    """`python -m bench.learn_simulated` shows more of the same."""

    def test_little_is_lost_and_after_twenty_it_is_near_the_best(self, name):
        world = WORLDS[name]
        for seed in SEEDS:
            run, best = simulated(world, TASKS, adaptive(), seed), best_fixed(world, TASKS, seed)
            assert run.seconds <= best * (1 + FINDING_OUT / TASKS)
            then = run.seconds - run.ends[FINDING_OUT - 1]
            assert best * (1 - FINDING_OUT / TASKS) / then >= NEAR

    def test_what_is_known_helps_the_next_run(self, name):
        """It is close to the best from the first task on."""
        world = WORLDS[name]
        known = simulated(world, 2 * TASKS, adaptive(), 1).evidence
        later = simulated(world, TASKS, adaptive(), 2, evidence=known)
        assert later.seconds <= best_fixed(world, TASKS, 2) / NEAR


@pytest.mark.parametrize("name", ["lock", "shared lock"])
def test_the_answer_to_a_lock_is_one(name):
    found = [simulated(WORLDS[name], TASKS, adaptive(), seed, 0.1).best[-1] for seed in SEEDS]
    assert found == [1] * len(SEEDS)


@pytest.mark.parametrize(("before", "after"), [("sleep", "lock"), ("sleep", "cpu")])
def test_a_change_of_the_world_is_noticed(before, after):
    run = simulated(WORLDS[before], 160, adaptive(), 3, later=WORLDS[after])
    assert run.evidence.changes >= 1
    assert efficiency(WORLDS[after], run.workers[-1]) >= NEAR


def test_what_got_better_is_found_in_time():
    """With one worker, nothing shows that a lock is gone: it checks from time to time."""
    run = simulated(WORLDS["lock"], 160, adaptive(), 3, later=WORLDS["sleep"])
    assert run.best[-1] == LIMIT


class TestLookingAgain:
    """Checking whether more workers now pay off: how often depends on the cost of a check."""

    @staticmethod
    def workers(world, alone):
        """The number of workers after this many attempts with one, for a known law."""
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
        """After 30 of 60, on average. `python -m bench.learn_simulated` has more seeds."""
        before, after = WORLDS["lock"], WORLDS["sleep"]
        lost = [
            simulated(before, TASKS, adaptive(), seed, later=after).seconds
            / best_fixed(before, TASKS, seed, after)
            - 1
            for seed in range(8)
        ]
        assert mean(lost) < 1 / 4, lost

    def test_a_lock_that_goes_halfway_in_a_real_run(self):
        """At any point of the search for the best number: attempts that queued for the lock while
        the number of workers changed must not count."""
        laws = [WORLDS["lock"]] * 30 + [WORLDS["sleep"]] * 30
        found = [lost(laws, adaptive(), seed) for seed in range(12)]
        assert max(found) < 1 / 4, found


class TestFoundingExamples:
    def test_searches_that_are_nine_times_faster_are_always_parallel(self):
        known = evidence_of(WORLDS["sleep"], (1, 4, 10), 60)
        choice = choose(posterior(known), 10)
        assert choice.workers == 10 and choice.settled
        assert choice.why.startswith("10 at once save ") and choice.why.endswith(" of the time")
        assert posterior(known).benefit(10).mean == pytest.approx(0.9, abs=0.02)

    def test_calls_that_gain_a_tenth_run_in_sequence(self):
        known = evidence_of(WORLDS["ten percent"], (1, 2, 4), 150, spread=0.1)
        choice = choose(posterior(known), 4)
        assert choice.workers == 1 and choice.settled
        assert "one at a time" in choice.why and "would save only" in choice.why

    def test_what_was_only_said_decides_until_more_is_known(self):
        search, call = (choose(posterior(Evidence(), Claim(b)), 4) for b in (0.75, 0.1))
        assert search.workers >= 3 and call.workers == 1
        assert "by your estimate" in search.why and not search.settled


@pytest.mark.parametrize("world", ["lock", "memory", "ten percent"])
def test_an_exaggerated_claim_is_corrected(world):
    """If it kept the claimed number, it would never see what fewer workers do. In the end its
    estimate is closer to the true value than to the claim, and it wants half as many or fewer."""
    claimed, law = 0.9, WORLDS[world]
    truth = 1 - law(4) / 4
    for seed in SEEDS:
        run = simulated(law, TASKS, adaptive(claimed=Claim(claimed)), seed)
        assert posterior(run.evidence, Claim(claimed)).benefit(4).mean < (truth + claimed) / 2
        assert run.best[-1] <= LIMIT // 2, run.workers


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
