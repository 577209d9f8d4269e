"""Who gets how many workers: rules that must hold for any demands."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hypervisor.queue.lane import PRIORITIES
from hypervisor.resources.allocation import Demand, Pool, assign_workers, cap_demands

DEMANDS = st.lists(
    st.builds(
        Demand,
        st.builds(Pool, st.text("abcdefgh", min_size=1, max_size=3), st.sampled_from(["", "x"])),
        st.sampled_from(PRIORITIES),
        st.integers(0, 5),
        st.integers(0, 12),
    ),
    max_size=8,
    unique_by=lambda demand: demand.pool,
)
TOTALS = st.integers(0, 40)


def order(demand):
    return PRIORITIES.index(demand.priority), demand.rank, demand.pool


@given(DEMANDS, TOTALS)
def test_nobody_gets_more_than_there_is_or_than_they_asked_for(demands, total):
    given_out = assign_workers(demands, total)
    assert set(given_out) == {demand.pool for demand in demands}
    assert all(0 <= given_out[demand.pool] <= demand.workers for demand in demands)
    assert sum(given_out.values()) <= total


@given(DEMANDS, TOTALS)
def test_nothing_is_left_over_while_someone_wants_more(demands, total):
    wanted = sum(demand.workers for demand in demands)
    assert sum(assign_workers(demands, total).values()) == min(total, wanted)


@given(DEMANDS, TOTALS)
def test_the_less_urgent_get_something_only_if_the_urgent_have_all(demands, total):
    given_out = assign_workers(demands, total)
    for urgent in demands:
        for other in demands:
            if PRIORITIES.index(urgent.priority) < PRIORITIES.index(other.priority):
                satisfied = given_out[urgent.pool] == urgent.workers
                assert satisfied or given_out[other.pool] == 0


@given(DEMANDS, TOTALS)
def test_of_equals_each_gets_one_before_any_gets_two(demands, total):
    given_out = assign_workers(demands, total)
    for one in demands:
        for other in demands:
            if one.priority == other.priority and one.workers and given_out[other.pool] > 1:
                assert given_out[one.pool] >= 1


@given(DEMANDS, TOTALS)
def test_of_equals_the_older_is_served_first(demands, total):
    given_out = assign_workers(demands, total)
    for one in demands:
        for other in demands:
            if one.priority == other.priority and order(one) < order(other):
                if given_out[one.pool] == 0:
                    assert given_out[other.pool] == 0 or one.workers == 0
                if given_out[other.pool] > 1:
                    assert given_out[one.pool] == one.workers


@given(DEMANDS, TOTALS, st.randoms())
def test_the_order_of_the_question_does_not_matter(demands, total, random):
    shuffled = list(demands)
    random.shuffle(shuffled)
    assert assign_workers(shuffled, total) == assign_workers(demands, total)


@given(DEMANDS, TOTALS)
def test_one_more_worker_takes_nothing_from_anyone(demands, total):
    before, after = assign_workers(demands, total), assign_workers(demands, total + 1)
    assert all(after[batch] >= before[batch] for batch in before)


@given(DEMANDS, st.integers(-5, 0))
def test_without_workers_nobody_gets_any(demands, total):
    assert set(assign_workers(demands, total).values()) <= {0}


def test_an_example():
    demands = [
        Demand(Pool("young"), "medium", 9, 4),
        Demand(Pool("old"), "medium", 1, 4),
        Demand(Pool("idle"), "critical", 0, 0),
        Demand(Pool("urgent"), "high", 5, 2),
        Demand(Pool("low"), "low", 0, 9),
    ]

    def by_batch(total):
        return {pool.batch: count for pool, count in assign_workers(demands, total).items()}

    assert by_batch(7) == {"idle": 0, "urgent": 2, "old": 4, "young": 1, "low": 0}
    assert by_batch(4) == {"idle": 0, "urgent": 2, "old": 1, "young": 1, "low": 0}
    assert assign_workers([], 5) == {}


@given(DEMANDS, TOTALS)
def test_those_that_belong_together_share_what_they_may_have(demands, most):
    together = {demand.pool for demand in demands if "a" in demand.pool.batch}
    after = cap_demands(demands, together, most)
    assert [each._replace(workers=0) for each in after] == [d._replace(workers=0) for d in demands]
    for before, each in zip(demands, after, strict=True):
        assert each == before if each.pool not in together else each.workers <= before.workers
    wanted = sum(demand.workers for demand in demands if demand.pool in together)
    assert sum(each.workers for each in after if each.pool in together) == min(most, wanted)
