"""The load of a host, read from simulated file trees: whatever is mounted, missing or invalid."""

import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hypervisor.resources.load import HostLoad
from tests.resources.made_up_host import GB, MB


class TestCpu:
    def test_is_what_was_used_between_two_reads(self, machine):
        load = machine.load()
        machine.cpu(busy=75, idle=25)
        assert load.read([]).cpu == 0.75
        machine.cpu(busy=10, idle=90)
        assert load.read([]).cpu == 0.10

    def test_a_moment_says_nothing_and_is_not_lost(self, machine):
        load = machine.load()
        machine.cpu(busy=75, idle=25)
        load.read([])
        machine.cpu(busy=3, idle=0)
        assert load.read([]).cpu == 0.75
        machine.cpu(busy=0, idle=97)
        assert load.read([]).cpu == 0.03

    def test_a_peak_at_the_start_counts_no_more_than_the_last_minute(self, machine):
        machine.write("proc/loadavg", "0.08 1.50 1.20 1/300 4711\n")
        load = machine.load()
        machine.cpu(busy=95, idle=5)
        assert load.read([]).cpu == pytest.approx(0.04)
        machine.cpu(busy=95, idle=5)
        assert load.read([]).cpu == 0.95

    def test_stolen_time_is_not_busy(self, machine):
        load = machine.load()
        machine.cpu(busy=20, idle=30, steal=50)
        assert load.read([]).cpu == 0.2

    def test_own_is_that_of_the_workers_and_all_below_them(self, machine):
        machine.process(10, cpu=5)
        machine.process(11, parent=10, cpu=5)
        machine.process(99, cpu=5)
        load = machine.load()
        load.read([10])
        machine.cpu(busy=50, idle=50)
        load.read([10])
        machine.process(10, cpu=10, ended=20)  # of which 20 by 11, which has ended
        machine.gone(11)
        machine.process(12, parent=10, cpu=15)
        machine.process(99, cpu=45)
        machine.cpu(busy=80, idle=20)
        found = load.read([10])
        assert (found.cpu, found.own) == (0.8, pytest.approx(0.35))

    def test_a_worker_below_another_is_counted_once(self, machine):
        machine.process(10)
        machine.process(11, parent=10)
        load = machine.load()
        machine.cpu(busy=50, idle=50)
        load.read([10, 11])
        machine.process(11, parent=10, cpu=20)
        machine.cpu(busy=50, idle=50)
        assert load.read([10, 11]).own == pytest.approx(0.2)

    def test_own_includes_this_process(self, machine):
        load = machine.load()
        machine.process("self", cpu=30)
        machine.cpu(busy=50, idle=50)
        assert load.read([]).own == pytest.approx(0.3)

    def test_a_new_worker_counts_with_no_more_than_one_cpu(self, machine):
        load = machine.load()
        machine.process(10, cpu=20)
        machine.process(11, cpu=100_000)  # adopted: it has been at work for long
        machine.cpu(busy=100, idle=0)
        assert load.read([10, 11]).own == pytest.approx(0.7)

    def test_own_is_never_more_than_all(self, machine):
        load = machine.load()
        machine.process(10, cpu=10_000)
        machine.cpu(busy=10, idle=90)
        assert load.read([10]).own == 0.1

    def test_a_pid_that_was_given_away_again_is_another_worker(self, machine):
        machine.process(10, cpu=50, start=1)
        load = machine.load()
        machine.cpu(busy=50, idle=50)
        load.read([10])
        machine.process(10, cpu=10, start=2)
        machine.cpu(busy=50, idle=50)
        assert load.read([10]).own == pytest.approx(0.1)

    def test_workers_that_are_gone_are_left_out(self, machine):
        load = machine.load()
        machine.cpu(busy=50, idle=50)
        assert load.read([12345]).own == 0.0

    def test_clocks_that_go_back_do_no_harm(self, machine):
        load = machine.load()
        machine.cpu(busy=-10, idle=110)
        assert load.read([]).cpu == 0.0


class TestStalls:
    def test_absent(self, machine):
        assert machine.read().stall is None

    def test_of_the_host(self, machine):
        machine.pressure("proc/pressure/memory", "12.34")
        assert machine.read().stall == 12.34

    def test_the_worst_of_host_and_groups(self, machine):
        machine.mount("cgroup2", "cgroup", "/slice/job")
        machine.pressure("proc/pressure/memory", "1.00")
        machine.pressure("cgroup/slice/memory.pressure", "30.00")
        machine.pressure("cgroup/slice/job/memory.pressure", "0.00")
        assert machine.read().stall == 30.0

    @pytest.mark.parametrize("text", ["", "full", "full avg10=", "full avg10=x", "\0\xff"])
    def test_garbage(self, machine, text):
        machine.write("proc/pressure/memory", text)
        assert machine.read().stall is None


FILES = [
    "stat",
    "meminfo",
    "loadavg",
    "self/stat",
    "self/cgroup",
    "self/mountinfo",
    "10/stat",
    "10/smaps_rollup",
    "pressure/memory",
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.sampled_from(FILES), st.text(max_size=80)))
def test_any_garbage_is_left_out(machine, garbage):
    machine.process(10, rss=5 * GB, pss=5 * GB)
    for name, text in garbage.items():
        machine.write(f"proc/{name}", text)
    load = machine.load(memory_limit=6 * GB)
    machine.process(10, cpu=5)
    found = load.read([10])
    assert 0 <= found.own <= found.cpu <= 1
    assert found.memory_used >= 0 and found.memory_limit > 0


def test_a_process_of_garbage_is_left_out(machine):
    machine.process(10, rss=GB)
    machine.process(11, parent=10, rss=GB, start="x")
    assert machine.load(memory_limit=6 * GB).read([10]).memory_used == GB


CGROUP_FILES = ["memory.max", "memory.high", "memory.current", "memory.stat", "memory.pressure"]


@pytest.mark.parametrize("text", ["", "x", "max", "-5", "1e5", "\n\n"])
@pytest.mark.parametrize("name", CGROUP_FILES)
def test_garbage_in_a_cgroup_is_left_out(machine, name, text):
    machine.mount("cgroup2", "cgroup", "/job")
    machine.v2("cgroup/job", 6 * GB, 3 * GB)
    machine.write(f"cgroup/job/{name}", text)
    found = machine.read()
    assert found.memory_limit in (6 * GB, 16 * GB) and found.memory_used >= 0


SPIN = "import sys\nprint(flush=True)\nwhile sys.stdin.readable(): pass"


def test_this_host_for_real():
    load = HostLoad()
    child = subprocess.Popen([sys.executable, "-ISc", SPIN], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        load.read([child.pid])
        before = os.times().user + 0.15
        while os.times().user < before:  # so that a while passes, at least on one core
            pass
        found = load.read([child.pid])
    finally:
        child.kill()
        child.communicate()
    assert 0 < found.own <= found.cpu <= 1
    assert 0 < found.memory_used < found.memory_limit
    assert HostLoad(memory_limit=MB).read([os.getpid()]).ram > 1
