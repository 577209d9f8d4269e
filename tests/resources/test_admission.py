"""Admission by fit: never above the limit, and never stuck."""

from hypothesis import given
from hypothesis import strategies as st

from hypervisor.resources.admission import (
    MIN_SIZE,
    NOTHING_SEEN,
    SETTLE_MS,
    TOLERANCE,
    Footprint,
    Guess,
    free,
    guess_from,
    likely_need,
    observe_trial,
    starts_that_fit,
    workers_to_drain,
)
from hypervisor.resources.zones import Load

MB, GB = 1 << 20, 1 << 30
CEILING = 0.9
BYTES = st.integers(0, 8 * GB)
FOOTPRINTS = st.lists(st.builds(Footprint, BYTES, BYTES), max_size=8)


def load(used, limit=10 * GB):
    return Load(0.0, 0.0, used, limit)


def test_as_many_start_as_fit():
    assert starts_that_fit(load(2 * GB), [], 2 * GB, 8, ceiling=CEILING) == 3
    assert starts_that_fit(load(2 * GB), [], 2 * GB, 2, ceiling=CEILING) == 2
    assert starts_that_fit(load(2 * GB), [], 0, 8, ceiling=CEILING) == 8


def test_room_is_kept_for_what_the_running_will_still_need():
    growing = [Footprint(2 * GB, GB)] * 2
    assert free(load(2 * GB), growing, CEILING) == 5 * GB
    assert starts_that_fit(load(2 * GB), growing, 2 * GB, 8, ceiling=CEILING) == 2


def test_what_overran_its_peak_needs_no_room_but_makes_others_dearer():
    overrun = [Footprint(GB, 3 * GB)]
    assert free(load(3 * GB), overrun, CEILING) == 6 * GB
    assert likely_need(GB, overrun) == 3 * GB
    assert starts_that_fit(load(3 * GB), overrun, GB, 8, ceiling=CEILING) == 2


def test_one_starts_if_nothing_runs():
    assert starts_that_fit(load(10 * GB), [], 50 * GB, 8, ceiling=CEILING) == 1
    assert starts_that_fit(load(10 * GB), [], None, 8, ceiling=CEILING) == 1
    assert starts_that_fit(load(10 * GB), [Footprint(GB, 0)], 50 * GB, 8, ceiling=CEILING) == 0
    assert (
        starts_that_fit(load(0), [], GB, 0, ceiling=CEILING)
        == starts_that_fit(load(0), [], GB, -3, ceiling=CEILING)
        == 0
    )


def test_without_a_known_limit_everything_fits():
    assert starts_that_fit(load(5 * GB, limit=0), [], GB, 8, ceiling=CEILING) == 8
    assert workers_to_drain(load(5 * GB, limit=0), [Footprint(GB, GB)] * 5, GB, CEILING) == 0


@given(BYTES, BYTES, FOOTPRINTS, BYTES, st.integers(-2, 50))
def test_nothing_is_admitted_over_the_ceiling(used, limit, running, expected, wanted):
    count = starts_that_fit(load(used, limit + 1), running, expected, wanted, ceiling=CEILING)
    assert 0 <= count <= max(0, wanted)
    if count > (0 if running else 1):
        growth = sum(max(0, each.expected - each.current) for each in running)
        assert used + growth + count * expected <= CEILING * (limit + 1)


@given(BYTES, BYTES, FOOTPRINTS, BYTES, st.integers(0, 50))
def test_more_use_never_admits_more(used, more, running, expected, wanted):
    lower, higher = load(used), load(used + more)
    assert starts_that_fit(higher, running, expected, wanted, ceiling=CEILING) <= starts_that_fit(
        lower, running, expected, wanted, ceiling=CEILING
    )
    assert workers_to_drain(higher, running, expected, CEILING) >= workers_to_drain(
        lower, running, expected, CEILING
    )


@given(BYTES, FOOTPRINTS, BYTES)
def test_some_must_go_only_if_no_more_can_come(used, running, expected):
    going = workers_to_drain(load(used), running, expected, CEILING)
    assert 0 <= going <= max(0, len(running) - 1)
    if going:
        assert starts_that_fit(load(used), running, expected, 1, ceiling=CEILING) == 0


def test_a_small_overrun_is_borne():
    limit = 10 * GB
    running = [Footprint(GB, GB)] * 9
    borne = int((CEILING + TOLERANCE) * limit)
    assert workers_to_drain(load(borne, limit), running, GB, CEILING) == 0
    assert workers_to_drain(load(borne + 1, limit), running, GB, CEILING) == 1
    assert workers_to_drain(load(borne + GB + 1, limit), running, GB, CEILING) == 2


def test_nobody_makes_room_for_what_needs_none():
    assert workers_to_drain(load(10 * GB), [Footprint(GB, GB)] * 9, 0, CEILING) == 0


def trial_over(sizes, step=500):
    """The result of a trial after an attempt had these sizes, one per step."""
    trial = None
    for number, size in enumerate(sizes):
        trial = observe_trial(trial, [size], number * step)
    return guess_from(trial, (len(sizes) - 1) * step)


def test_before_anything_was_seen_there_is_room_for_the_unknown_only():
    unknown = [Footprint(None, 10 * MB)]
    assert guess_from(None, 5) == trial_over([MB, MB]) == NOTHING_SEEN
    assert starts_that_fit(load(0, 6 * GB), [], None, 8, ceiling=CEILING) == 1
    assert starts_that_fit(load(0, 6 * GB), unknown, None, 8, ceiling=CEILING) == 0
    assert (
        starts_that_fit(load(0, 24 * GB), [], None, 8, ceiling=CEILING) == 5
    )  # nothing is small on a big host
    assert starts_that_fit(load(0, 24 * GB), unknown * 5, None, 8, ceiling=CEILING) == 0


def test_what_has_settled_shows_what_each_needs():
    guess = trial_over([0, GB, *[GB] * 4])
    assert guess == Guess(GB, GB * 9 // 8, None)
    assert (
        starts_that_fit(
            load(GB, 6 * GB), [Footprint(None, GB)], None, 8, ceiling=CEILING, guess=guess
        )
        == 3
    )


def test_small_ones_are_taken_for_a_little_bigger():
    assert trial_over([MB] * 6).next == trial_over([0] * 6).next == MIN_SIZE


def test_what_grows_may_double_and_another_starts_when_the_age_has_doubled():
    steps = {age: trial_over([n * MB for n in range(1, age * 2 + 2)]) for age in (2, 4, 8, 16, 32)}
    assert [guess.most for guess in steps.values()] == [2, 3, 4, 5, 6]
    assert steps[2].running == steps[2].next == MIN_SIZE
    assert steps[32].running == steps[32].next == 2 * 65 * MB
    unknown = [Footprint(None, MB)] * 3
    assert starts_that_fit(load(0, 6 * GB), unknown, None, 8, ceiling=CEILING, guess=steps[8]) == 1
    assert starts_that_fit(load(0, 6 * GB), unknown, None, 8, ceiling=CEILING, guess=steps[4]) == 0


@given(st.integers(SETTLE_MS, 10**6), st.integers(200, 1000), st.integers(1, 10**6))
def test_steady_growth_is_never_taken_for_settled(age, step, rate):
    trial = None
    for now in range(0, age + 1, max(step, age // 100)):
        trial = observe_trial(trial, [now * rate], now)
    assert guess_from(trial, age).most is not None


@given(st.lists(st.tuples(st.integers(0, 5000), BYTES), max_size=20), FOOTPRINTS, BYTES)
def test_a_guess_admits_nothing_over_the_ceiling_either(steps, running, used):
    trial, now = None, 0
    for passed, size in steps:
        now += passed
        trial = observe_trial(trial, [size], now)
    guess = guess_from(trial, now)
    count = starts_that_fit(load(used), running, None, 50, ceiling=CEILING, guess=guess)
    if count > (0 if running else 1):
        growth = sum(max(0, each.expected - each.current) for each in running)
        assert used + growth + count * guess.next <= CEILING * 10 * GB
