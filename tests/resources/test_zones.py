"""Zones: their thresholds, how they are entered and left, and what they allow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.resources.zones import (
    DANGER,
    DEFAULTS,
    EMERGENCY,
    SAFE,
    WARNING,
    ZONES,
    Load,
    Thresholds,
    ZoneState,
    allowed,
    next_zone,
    zone_for,
)

LIMIT = 10_000
TICK = 500
SHARES = st.floats(0, 1)
STALLS = st.none() | st.floats(0, 100)


def load(cpu=0.0, ram=0.0, stall=None, own=0.0, planned=0.0):
    return Load(cpu, own, round(ram * LIMIT), LIMIT, stall, round(planned * LIMIT))


def walk(loads, thresholds=DEFAULTS, step=TICK):
    """The zones that a host goes through, one for each load."""
    state, zones = ZoneState(), []
    for number, each in enumerate(loads):
        state = next_zone(state, each, thresholds, number * step)
        zones.append(state.zone)
    return zones


def changes(zones):
    return sum(a != b for a, b in zip([SAFE, *zones], zones, strict=False))


@pytest.mark.parametrize(
    "cpu, ram, stall, zone",
    [
        (0.0, 0.0, None, SAFE),
        (0.59, 0.69, 0.0, SAFE),
        (0.60, 0.0, None, WARNING),
        (0.0, 0.70, None, WARNING),
        (0.75, 0.80, None, WARNING),
        (0.80, 0.85, None, WARNING),
        (0.81, 0.0, None, DANGER),
        (0.0, 0.86, None, DANGER),
        (1.0, 0.95, 20.0, DANGER),
        (0.0, 0.96, None, EMERGENCY),
        (0.0, 0.0, 20.1, EMERGENCY),
    ],
)
def test_the_thresholds_of_the_founding_documents(cpu, ram, stall, zone):
    assert zone_for(load(cpu, ram, stall), DEFAULTS) == zone


def test_own_cpu_does_not_count():
    assert zone_for(load(cpu=1.0, own=0.95), DEFAULTS) == SAFE
    assert zone_for(load(cpu=1.0, own=0.35), DEFAULTS) == WARNING
    assert zone_for(load(cpu=0.5, own=0.7), DEFAULTS) == SAFE


def test_planned_memory_counts_in_an_emergency_only():
    assert zone_for(load(ram=0.9), DEFAULTS) == DANGER
    assert zone_for(load(ram=0.9, planned=0.8), DEFAULTS) == SAFE
    assert zone_for(load(ram=0.9, planned=0.15), DEFAULTS) == WARNING
    assert zone_for(load(ram=0.96, planned=0.9), DEFAULTS) == EMERGENCY


def test_without_a_known_limit_memory_says_nothing():
    assert zone_for(Load(0.1, 0.0, 5, 0), DEFAULTS) == SAFE


def test_a_zone_is_entered_at_once():
    loads = [load(ram=share) for share in (0.1, 0.72, 0.88, 0.97)]
    assert walk(loads) == [SAFE, WARNING, DANGER, EMERGENCY]
    assert walk([load(ram=0.97)]) == [EMERGENCY]


def test_a_zone_is_left_after_a_calm_while():
    assert walk([load(ram=0.97)] + [load()] * 7) == [EMERGENCY] * 7 + [SAFE]


def test_a_zone_is_not_left_within_the_margin():
    assert set(walk([load(ram=0.86)] + [load(ram=0.81)] * 50)) == {DANGER}
    assert walk([load(ram=0.86)] + [load(ram=0.79)] * 50)[-1] == WARNING
    assert set(walk([load(stall=21.0)] + [load(stall=16.0)] * 50)) == {EMERGENCY}
    assert walk([load(stall=21.0)] + [load(stall=14.0)] * 50)[-1] == SAFE


def test_one_rise_starts_the_wait_again():
    calm, rise = load(cpu=0.1), load(cpu=0.58)
    assert set(walk([load(cpu=0.7), *([calm] * 6 + [rise]) * 5])) == {WARNING}


def test_the_way_down_leads_no_lower_than_the_while_was_calm():
    """The danger is long over, but the load is only just safe: the next zone is warning."""
    zones = walk([load(ram=0.9)] + [load(ram=0.75)] * 6 + [load(ram=0.1)] * 8)
    assert zones == [DANGER] * 7 + [WARNING] * 6 + [SAFE] * 2


def test_since_tells_when_the_zone_was_entered():
    state = next_zone(ZoneState(), load(cpu=0.7), DEFAULTS, 1000)
    assert (state.zone, state.since) == (WARNING, 1000)
    assert next_zone(state, load(cpu=0.7), DEFAULTS, 2000).since == 1000
    assert next_zone(state, load(cpu=0.9), DEFAULTS, 2000).since == 2000


def test_a_clock_that_goes_back_only_prolongs_the_wait():
    state = next_zone(ZoneState(WARNING, 9000), load(), DEFAULTS, 9000)
    state = next_zone(state, load(), DEFAULTS, 5000)
    assert state.zone == WARNING
    assert next_zone(state, load(), DEFAULTS, 8000).zone == SAFE


THRESHOLDS = [
    *(("cpu", level) for level in (0.60, 0.80)),
    *(("ram", level) for level in (0.70, 0.85, 0.95)),
    ("stall", 20.0),
]


@pytest.mark.parametrize("measure, level", THRESHOLDS)
@given(jitter=st.lists(st.floats(-0.02, 0.02), max_size=60), step=st.integers(1, 5000))
def test_a_load_that_jitters_around_a_threshold_changes_the_zone_at_most_once_more(
    measure, level, jitter, step
):
    scale = 100 if measure == "stall" else 1
    loads = [load(**{measure: level + scale * each}) for each in jitter]
    entered = changes(walk(loads[:1], step=step))
    assert changes(walk(loads, step=step)) <= entered + 1


@given(st.lists(st.tuples(SHARES, SHARES, STALLS), max_size=40))
def test_the_zone_is_never_below_what_the_load_asks_for(points):
    loads = [load(*point) for point in points]
    for each, zone in zip(loads, walk(loads), strict=True):
        assert ZONES.index(zone) >= ZONES.index(zone_for(each, DEFAULTS))


@given(SHARES, SHARES, STALLS, SHARES, SHARES, STALLS, st.integers(1, 100))
def test_more_load_never_allows_more(cpu, ram, stall, more_cpu, more_ram, more_stall, limit):
    lower = load(cpu, ram, stall)
    higher = load(
        max(cpu, more_cpu), max(ram, more_ram), max(stall or 0.0, more_stall or 0.0) or stall
    )
    few = allowed(zone_for(higher, DEFAULTS), limit)
    assert few <= allowed(zone_for(lower, DEFAULTS), limit)


@given(st.sampled_from(ZONES), st.integers(1, 10_000))
def test_never_above_the_limit_and_never_below_one(zone, limit):
    assert 1 <= allowed(zone, limit) <= limit


def test_what_each_zone_allows():
    assert [allowed(zone, 5) for zone in ZONES] == [5, 2, 1, 1]
    assert [allowed(zone, 1) for zone in ZONES] == [1, 1, 1, 1]
    assert [allowed(zone, 0) for zone in ZONES] == [0, 0, 0, 0]


def test_a_threshold_of_1_is_never_reached():
    never = Thresholds(1, 1, 1, 1, 1, 100)
    assert set(walk([load(1.0, 1.0, 100.0)] * 20, never)) == {SAFE}


def test_thresholds_can_be_changed():
    strict = Thresholds(cpu_warning=0.2, cpu_danger=0.3, hold_ms=0)
    assert walk([load(cpu=0.25), load(cpu=0.35), load()], strict) == [WARNING, DANGER, SAFE]
