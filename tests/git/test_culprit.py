"""Finding the culprit: few runs, and no culprit for a flake or a target that fails itself."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.git.culprit import Plan, Result, Run

SIZE = 16


def work(plan, passes, width=1):
    """Run it as a merge queue would, and return the result with the runs in order."""
    runs: list[Run] = []
    running: list[Run] = []
    while plan.result is None:
        running += plan.wanted(width, frozenset(running))
        assert running, "neither a result nor anything to run"
        assert len(running) <= width
        run = running.pop(0)
        runs.append(run)
        plan.record(run, passes(run.prefix))
        running = [other for other in running if not plan.useless(other)]
        assert len(runs) < 100
    assert plan.wanted(width) == []
    return plan.result, runs


def test_one_run_if_all_is_well():
    result, runs = work(Plan(SIZE), lambda prefix: True)
    assert result == Result(SIZE)
    assert runs == [Run(SIZE)]


@pytest.mark.parametrize("culprit", range(1, SIZE + 1))
@pytest.mark.parametrize("base_passed", [True, False])
def test_one_culprit_among_16_is_found_in_5_runs_and_confirmed_by_one(culprit, base_passed):
    result, runs = work(Plan(SIZE, base_passed), lambda prefix: prefix < culprit)
    assert result == Result(culprit - 1, culprit)
    finding = [run for run in runs if not run.again and run.prefix > 0]
    assert len(finding) <= 5
    assert [run for run in runs if run.again and run.prefix] == [Run(culprit, again=True)]
    base_runs = [run for run in runs if run.prefix == 0]
    assert len(base_runs) == (1 if culprit == 1 else 0)  # nothing else has passed
    assert len(runs) == 6 + len(base_runs)


def test_two_culprits_are_found_one_by_one():
    bad, entries = {3, 11}, list(range(1, SIZE + 1))
    returned, total = [], 0
    while True:
        plan = Plan(len(entries))
        result, runs = work(plan, lambda prefix: not bad.intersection(entries[:prefix]))
        total += len(runs)
        if result.culprit is None:
            break
        returned.append(entries.pop(result.culprit - 1))
    assert returned == [3, 11]
    assert result.passed == len(entries) == 14
    assert total <= 13


@pytest.mark.parametrize("pair", list(combinations(range(1, 9), 2)))
def test_of_two_that_fail_only_together_the_later_is_the_culprit(pair):
    result, _ = work(Plan(8), lambda prefix: prefix < max(pair))
    assert result == Result(max(pair) - 1, max(pair))


def test_a_target_that_fails_blames_no_one():
    result, runs = work(Plan(SIZE), lambda prefix: False)
    assert result == Result(0, base_failed=True)
    assert [run for run in runs if run.prefix == 0] == [Run(0), Run(0, again=True)]


@pytest.mark.parametrize("size", [1, 2, 16])
@pytest.mark.parametrize("base_passed", [True, False])
def test_while_everything_fails_no_one_is_blamed(size, base_passed):
    """A service is down, although the target passed before."""
    result, runs = work(Plan(size, base_passed), lambda prefix: False)
    assert result == Result(0, base_failed=True)
    assert len([run for run in runs if run.prefix == 0]) == 2


@pytest.mark.parametrize("failing", range(1, 8))
@pytest.mark.parametrize("base_passed", [True, False])
def test_the_first_runs_fail_and_no_one_is_blamed(failing, base_passed):
    count = iter(range(100))
    result, _ = work(Plan(SIZE, base_passed), lambda prefix: next(count) >= failing)
    assert result.culprit is None


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16])
def test_a_flake_at_any_one_run_blames_no_one(size):
    for at in range(8):
        count = iter(range(100))
        result, _ = work(Plan(size), lambda prefix, at=at, count=count: next(count) != at)
        assert result.culprit is None
        assert not result.base_failed
        assert result.passed == size


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_each_tree_that_fails_the_first_time_and_passes_the_second_is_a_flake(width):
    seen: Counter[int] = Counter()

    def passes(prefix):
        seen[prefix] += 1
        return seen[prefix] > 1

    result, _ = work(Plan(SIZE), passes, width)
    assert (result.passed, result.culprit, result.base_failed) == (SIZE, None, False)
    assert result.flaky


@pytest.mark.parametrize("culprit", range(1, SIZE + 1))
def test_a_flake_while_searching_does_not_blame_an_innocent(culprit):
    for at in range(6):
        count = iter(range(100))

        def passes(prefix, at=at, count=count):
            return prefix < culprit and next(count) != at

        result, _ = work(Plan(SIZE), passes)
        assert result.culprit == culprit


@pytest.mark.parametrize("width", [2, 3, 4, 8])
@pytest.mark.parametrize("culprit", range(1, SIZE + 1))
def test_prefixes_run_in_parallel_give_the_same_result(width, culprit):
    result, _ = work(Plan(SIZE), lambda prefix: prefix < culprit, width)
    assert result == Result(culprit - 1, culprit)


def test_what_cannot_change_the_result_is_not_waited_for():
    plan = Plan(SIZE, base_passed=True)
    runs = plan.wanted(4)
    assert runs[0] == Run(SIZE)
    assert len({run.prefix for run in runs}) == 4
    plan.record(Run(SIZE), True)
    assert plan.result == Result(SIZE)
    assert all(plan.useless(run) for run in runs)


@given(st.integers(1, 40), st.integers(1, 6), st.data())
def test_it_always_ends_and_never_lands_what_did_not_pass(size, width, data):
    passed: set[int] = set()
    failed: Counter[int] = Counter()

    def passes(prefix):
        ok = data.draw(st.booleans())
        if ok:
            passed.add(prefix)
        else:
            failed[prefix] += 1
        return ok

    result, runs = work(Plan(size), passes, width)
    assert result.base_failed or result.passed in passed
    if result.culprit is not None:
        assert result.culprit == result.passed + 1
        assert failed[result.culprit] == 2
        assert result.culprit not in passed
    assert len(runs) <= 2 * (size + 1)
