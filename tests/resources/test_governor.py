"""The governor under a scripted host: its decisions, its messages, and that it does not flap."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.queue.lane import PRIORITIES
from hypervisor.resources.admission import Footprint
from hypervisor.resources.governor import Governor, RunningAttempt
from hypervisor.resources.zones import DANGER, EMERGENCY, SAFE, WARNING, Load

MB, GB = 1 << 20, 1 << 30
LIMIT = 16 * GB
TICK = 500
SMALL = 100 * MB
PEAKS = ((0.95, 8), (0.15, 12))


class Host:
    """A scripted probe with a fleet on it: decisions are carried out at once."""

    def __init__(self, strategy="auto", limit=5, asked=5, expected=SMALL):
        self.load = Load(0.0, 0.0, 0, LIMIT)
        self.governor = Governor(self, strategy=strategy)
        self.limit, self.asked = limit, asked
        self.expected = expected
        self.running = []
        self.now = 0
        self.told = []
        self.stopped = []

    def read(self, workers):
        return self.load

    def at(self, cpu=0.0, ram=0.0, stall=None, own=0.0):
        self.load = Load(cpu, own, int(ram * LIMIT), LIMIT, stall)
        return self

    def add(self, count, priority="medium", current=SMALL):
        for _ in range(count):
            name = f"w{len(self.running) + len(self.stopped)}"
            footprint = Footprint(self.expected, current)
            self.running.append(RunningAttempt(name, priority, self.now, footprint))
        return self

    def tick(self):
        self.governor.tick(self.now, [], self.running)
        decision = self.governor.decide(
            self.now, self.asked, self.limit, self.running, self.expected
        )
        if decision.news:
            self.told.append(decision.sentence)
        self.now += TICK
        return decision

    def live(self, seconds):
        """Tick for this long; workers start, drain and stop as decided. Returns the last target."""
        for _ in range(int(seconds * 1000 / TICK)):
            decision = self.tick()
            self.stopped += decision.stop
            self.running = [each for each in self.running if each.worker not in decision.stop]
            del self.running[decision.target :]
            self.add(decision.target - len(self.running))
        return decision.target


def test_five_asked_at_75_cpu_and_80_ram_start_two():
    host = Host().at(cpu=0.75, ram=0.80)
    decision = host.tick()
    assert (decision.target, decision.stop) == (2, ())
    assert decision.sentence == "2 of 5 started: CPU 75 % busy with other work, RAM 80 % (warning)"
    assert decision.news


def test_five_of_an_unknown_kind_start_with_one_and_come_to_two():
    host = Host(expected=None).at(cpu=0.75, ram=0.80)
    assert host.tick().sentence == "1 of 5 started: memory use per attempt is not known yet"
    assert host.live(5) == 2


def test_everything_may_run_on_an_idle_host_and_nobody_needs_to_be_told():
    host = Host().at(cpu=0.1, ram=0.2)
    assert host.live(10) == 5
    assert host.told == []


def test_where_nobody_asks_there_is_nothing_to_start():
    host = Host(asked=0).at(cpu=0.1, ram=0.2)
    assert host.tick()[:3] == (0, (), "nothing to start: CPU 10 %, RAM 20 % (safe)")


def test_through_danger_and_emergency_and_back():
    host = Host().at(cpu=0.1, ram=0.2)
    zones, targets = [], []
    for ram in (0.2, 0.75, 0.88, 0.97, 0.88, 0.75, 0.2):
        targets.append(host.at(cpu=0.1, ram=ram).live(10))
        zones.append(host.governor.reading.zone)
    assert zones == [SAFE, WARNING, DANGER, EMERGENCY, DANGER, WARNING, SAFE]
    assert targets == [5, 2, 1, 1, 1, 2, 5]
    assert host.told == [
        "2 of 5 started: RAM 75 % (warning)",
        "starting nothing new: RAM 88 % (danger)",
        "starting nothing new: RAM 97 % (emergency)",
        "starting nothing new: RAM 88 % (danger)",
        "2 of 5 started: RAM 75 % (warning)",
        "5 of 5 may run: CPU 10 %, RAM 20 % (safe)",
    ]


def test_danger_on_an_idle_fleet_starts_one():
    assert Host().at(ram=0.88).tick()[:3] == (1, (), "1 of 5 started: RAM 88 % (danger)")


def test_an_emergency_on_an_idle_fleet_starts_none():
    sentence = "starting nothing new: RAM 97 % (emergency)"
    assert Host().at(ram=0.97).tick()[:3] == (0, (), sentence)


def test_cpu_that_stays_busy_slows_the_fleet_step_by_step():
    host = Host().at(cpu=0.0)
    host.live(5)
    host.at(cpu=1.0).live(10)
    assert host.governor.reading.zone == SAFE
    host.live(10)
    assert host.governor.reading.zone == WARNING
    host.live(10)
    assert host.governor.reading.zone == DANGER
    assert host.told[0].startswith("2 of 5 started: CPU 6")


def test_short_peaks_of_a_busy_desktop_slow_nothing_down():
    """In eight of every twenty seconds, another program uses all cores."""
    host = Host(limit=8, asked=8).at(cpu=0.15)
    host.live(5)
    targets = [host.at(cpu=cpu).live(seconds) for _ in range(10) for cpu, seconds in PEAKS]
    assert set(targets) == {8}
    assert host.told == []


def test_at_62_percent_of_foreign_cpu_half_of_the_workers_stay_however_busy_they_are():
    host = Host(limit=8, asked=8).at(cpu=0.62)
    targets = {host.at(cpu=min(1.0, 0.62 + own), own=own).live(20) for own in (0.0, 0.1, 0.2, 0.38)}
    assert targets == {4}
    assert host.told == ["4 of 8 started: CPU 62 % busy with other work (warning)"]


def test_the_first_look_leaves_out_what_it_took_to_get_started():
    host = Host().at(cpu=0.95, own=0.9)
    assert host.tick().target == 5


def test_commands_do_not_push_themselves_into_danger():
    """One niced command on each core is meant to use the machine."""
    host = Host(limit=2, asked=2).at(cpu=1.0, own=0.97)
    assert host.live(30) == 2
    assert host.told == []
    host.at(cpu=1.0, own=0.1).live(60)
    assert host.told == [
        "1 of 2 started: CPU 60 % busy with other work (warning)",
        "starting nothing new: CPU 80 % busy with other work (danger)",
    ]


def test_an_emergency_stops_the_lowest_priority_first_and_of_these_the_youngest():
    host = Host(limit=9, asked=9).at(ram=0.96)
    for priority in ("high", "low", "critical", "low", "medium"):
        host.add(1, priority)
        host.now += 1
    order = []
    while len(host.running) > 1:
        decision = host.tick()
        order += decision.stop
        host.running = [each for each in host.running if each.worker not in decision.stop]
    assert order == ["w3", "w1", "w4", "w0"]
    assert host.told[0] == "stopped 1 of low priority: RAM 96 % (emergency)"


def test_an_emergency_gives_memory_time_to_come_back():
    host = Host().at(ram=0.97).add(5)
    stops = [host.tick().stop for _ in range(8)]
    assert [bool(stop) for stop in stops] == [True, False] * 4
    assert len(set(stops) - {()}) == 4, "nobody is stopped twice, even if slow to go"


def test_nothing_more_is_stopped_once_the_emergency_is_over():
    host = Host().at(ram=0.97).add(5)
    assert host.tick().stop
    host.at(ram=0.93)
    assert [host.tick().stop for _ in range(20)] == [()] * 20
    assert host.governor.reading.zone == EMERGENCY  # but nothing starts so soon either


def test_stalls_take_longer_to_show_relief():
    host = Host().at(ram=0.5, stall=40.0).add(5)
    stops = [host.tick() for _ in range(42)]
    assert [i for i, decision in enumerate(stops) if decision.stop] == [0, 20, 40]
    assert stops[0].sentence == "stopped 1 of medium priority: stalled on memory 40 % (emergency)"


def test_the_last_one_stays_if_others_use_the_memory():
    host = Host().at(ram=0.97).add(1)
    assert [host.tick().stop for _ in range(10)] == [()] * 10


def test_the_last_one_goes_if_it_alone_is_the_problem():
    host = Host().at(ram=0.97).add(1, current=15 * GB)
    decision = host.tick()
    assert (decision.stop, decision.alone) == (("w0",), True)
    assert (
        decision.sentence
        == "stopped the only attempt, which uses 15 GB of 16 GB: RAM 97 % (emergency)"
    )


def test_the_last_one_stays_while_another_is_still_going():
    host = Host().at(ram=0.97).add(2, current=7 * GB)
    assert [bool(host.tick().stop) for _ in range(10)] == [True] + [False] * 9


def test_stalls_stop_the_last_one_only_if_it_uses_most_memory():
    assert not Host().at(ram=0.5, stall=40.0).add(1, current=3 * GB).tick().stop
    assert Host().at(ram=0.5, stall=40.0).add(1, current=5 * GB).tick().stop


def test_only_what_fits_is_started():
    host = Host(limit=8, asked=8, expected=700 * MB).at(ram=0.7686)
    host.governor.thresholds = host.governor.thresholds._replace(ram_warning=0.8)
    assert (
        host.tick().sentence
        == "3 of 8 started: 2.1 GB free, each attempt is expected to need 700 MB"
    )


def test_memory_that_was_planned_for_slows_nothing_down():
    host = Host(limit=8, asked=8, expected=3 * GB).add(4, current=3 * GB).at(ram=0.87)
    host.now += 60_000
    assert host.tick().target == 4
    assert host.governor.reading.zone == SAFE
    host.at(ram=0.96)
    assert host.tick().stop


def test_what_has_just_started_may_have_taken_what_was_planned():
    host = Host(limit=8, asked=8, expected=3 * GB).add(4, current=0).at(ram=0.87)
    host.now += 1500
    host.tick()
    assert host.governor.reading.zone == SAFE


def test_workers_drain_if_what_runs_will_not_fit():
    host = Host(limit=8, asked=8, expected=4 * GB).add(5, current=2 * GB).at(ram=0.7)
    decision = host.tick()
    assert decision.target == 3
    assert (
        decision.sentence == "3 of 8 started: no memory free, each attempt is expected to need 4 GB"
    )


def test_parallel_keeps_to_danger_and_emergency_only():
    host = Host("parallel", limit=8, asked=8, expected=3 * GB)
    assert host.at(cpu=0.75, ram=0.8).tick().target == 8
    assert host.at(cpu=0.75, ram=0.87).tick().target == 1
    assert host.add(3).at(ram=0.97).tick().stop


def test_parallel_plans_nothing_so_all_memory_counts():
    host = Host("parallel", limit=8, asked=8, expected=3 * GB).add(4, current=3 * GB)
    assert host.at(ram=0.87).tick().target == 1


def test_sequential_is_one_at_a_time():
    host = Host("sequential")
    assert host.tick()[:3] == (1, (), "1 of 5 started: --strategy sequential runs one at a time")
    assert host.tick().news is False
    assert host.at(ram=0.97).tick().target == 0


def test_no_more_than_asked_and_no_more_than_the_limit():
    assert Host(asked=3, limit=5).tick().target == 3
    assert Host(asked=9, limit=5).tick().target == 5
    assert Host(asked=0).at(ram=0.8).tick()[:1] == (0,)
    assert Host(limit=0).tick().target == 0


def test_an_idle_fleet_is_told_nothing():
    host = Host(asked=0)
    for ram in (0.2, 0.75, 0.9, 0.97, 0.2):
        host.at(ram=ram).live(10)
    assert host.told == []


def test_how_many_fit_is_told_now_and_then():
    host = Host(limit=8, asked=8, expected=3 * GB).at(ram=0.1)
    for ram in [0.1, 0.4] * 60:
        host.at(ram=ram).tick()
    assert len(host.told) == 1
    host.live(60)
    assert len(host.told) == 2


def test_a_decision_without_a_reading_holds_nobody_back():
    assert Governor(Host()).decide(0, 5, 5, [], SMALL).target == 5


LEVELS = [("cpu", 0.60), ("cpu", 0.80), ("ram", 0.70), ("ram", 0.85), ("ram", 0.95)]


@pytest.mark.parametrize("measure, level", LEVELS)
@given(jitter=st.lists(st.floats(-0.02, 0.02), min_size=5, max_size=40))
def test_a_load_that_jitters_around_a_threshold_is_reported_once(measure, level, jitter):
    host = Host().at(**{measure: level - 0.021})
    host.live(5)
    before, targets = len(host.told), []
    for each in jitter:
        targets.append(host.at(**{measure: level + each}).live(0.5))
    stops = [sentence for sentence in host.told if sentence.startswith("stopped")]
    assert len(host.told) - before - len(stops) <= 1
    assert sum(a != b for a, b in pairwise(targets)) <= 1


SHARES = st.floats(0, 1)
LOADS = st.tuples(SHARES, SHARES, st.none() | st.floats(0, 100), SHARES)
FLEET = st.lists(
    st.tuples(st.sampled_from(PRIORITIES), st.none() | st.integers(0, LIMIT), st.integers(0, LIMIT))
)


@given(
    st.lists(LOADS, min_size=1, max_size=10),
    FLEET,
    st.integers(0, 20),
    st.integers(1, 20),
    st.sampled_from(["auto", "parallel", "sequential"]),
    st.none() | st.integers(0, LIMIT),
)
def test_whatever_happens_the_answer_makes_sense(loads, fleet, asked, limit, strategy, expected):
    host = Host(strategy, limit, asked, expected=expected)
    host.running = [
        RunningAttempt(f"w{number}", priority, number, Footprint(peak, current))
        for number, (priority, peak, current) in enumerate(fleet)
    ]
    for load in loads:
        decision = host.at(*load).tick()
        zone = host.governor.reading.zone
        assert 0 <= decision.target <= min(asked, limit)
        assert decision.target or not asked or zone == EMERGENCY, "work goes on"
        assert zone not in (DANGER, EMERGENCY) or decision.target <= 1
        assert zone == EMERGENCY or not decision.stop
        assert set(decision.stop) <= {each.worker for each in host.running}
        assert decision.sentence.isprintable()
