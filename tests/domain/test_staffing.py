"""Who gets how many workers: rules that must hold for any demands."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hypervisor.domain.priority import PRIORITIES
from hypervisor.domain.staffing import Demand, staffed

DEMANDS = st.lists(
    st.builds(
        Demand,
        st.text("abcdefgh", min_size=1, max_size=3),
        st.sampled_from(PRIORITIES),
        st.integers(0, 5),
        st.integers(0, 12),
    ),
    max_size=8,
    unique_by=lambda demand: demand.batch,
)
TOTALS = st.integers(0, 40)


def order(demand):
    return PRIORITIES.index(demand.priority), demand.rank, demand.batch


@given(DEMANDS, TOTALS)
def test_nobody_gets_more_than_there_is_or_than_they_asked_for(demands, total):
    given_out = staffed(demands, total)
    assert set(given_out) == {demand.batch for demand in demands}
    assert all(0 <= given_out[demand.batch] <= demand.workers for demand in demands)
    assert sum(given_out.values()) <= total


@given(DEMANDS, TOTALS)
def test_nothing_is_left_over_while_somebody_wants_more(demands, total):
    wanted = sum(demand.workers for demand in demands)
    assert sum(staffed(demands, total).values()) == min(total, wanted)


@given(DEMANDS, TOTALS)
def test_the_less_urgent_get_something_only_if_the_urgent_have_all(demands, total):
    given_out = staffed(demands, total)
    for urgent in demands:
        for other in demands:
            if PRIORITIES.index(urgent.priority) < PRIORITIES.index(other.priority):
                satisfied = given_out[urgent.batch] == urgent.workers
                assert satisfied or given_out[other.batch] == 0


@given(DEMANDS, TOTALS)
def test_of_equals_each_gets_one_before_any_gets_two(demands, total):
    given_out = staffed(demands, total)
    for one in demands:
        for other in demands:
            if one.priority == other.priority and one.workers and given_out[other.batch] > 1:
                assert given_out[one.batch] >= 1


@given(DEMANDS, TOTALS)
def test_of_equals_the_older_is_served_first(demands, total):
    given_out = staffed(demands, total)
    for one in demands:
        for other in demands:
            if one.priority == other.priority and order(one) < order(other):
                if given_out[one.batch] == 0:
                    assert given_out[other.batch] == 0 or one.workers == 0
                if given_out[other.batch] > 1:
                    assert given_out[one.batch] == one.workers


@given(DEMANDS, TOTALS, st.randoms())
def test_the_order_of_the_question_does_not_matter(demands, total, random):
    shuffled = list(demands)
    random.shuffle(shuffled)
    assert staffed(shuffled, total) == staffed(demands, total)


@given(DEMANDS, TOTALS)
def test_one_more_worker_takes_nothing_from_anybody(demands, total):
    before, after = staffed(demands, total), staffed(demands, total + 1)
    assert all(after[batch] >= before[batch] for batch in before)


@given(DEMANDS, st.integers(-5, 0))
def test_without_workers_nobody_gets_any(demands, total):
    assert set(staffed(demands, total).values()) <= {0}


def test_an_example():
    demands = [
        Demand("young", "medium", 9, 4),
        Demand("old", "medium", 1, 4),
        Demand("idle", "critical", 0, 0),
        Demand("urgent", "high", 5, 2),
        Demand("low", "low", 0, 9),
    ]
    assert staffed(demands, 7) == {"idle": 0, "urgent": 2, "old": 4, "young": 1, "low": 0}
    assert staffed(demands, 4) == {"idle": 0, "urgent": 2, "old": 1, "young": 1, "low": 0}
    assert staffed([], 5) == {}
