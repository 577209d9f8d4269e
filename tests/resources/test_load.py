"""The load of a host, read from made-up trees of files: whatever is mounted, missing or garbage."""

import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hypervisor.resources.load import EXACT_EVERY, HostLoad

MB, GB = 1 << 20, 1 << 30
PAGE = os.sysconf("SC_PAGE_SIZE")
UNLIMITED_V1 = 9223372036854771712


class Machine:
    """A /proc and cgroup mounts below a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.proc = folder / "proc"
        self.busy = self.idle = 0
        self.cpu(0, 0)
        self.memory(16 * GB, 12 * GB)
        self.process("self", cpu=0)
        self.mounts, self.member_of = [], []

    def write(self, path, text):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def cpu(self, busy, idle, steal=0, cpus=2):
        """So many more ticks passed."""
        self.busy += busy
        self.idle += idle
        lines = [f"cpu  {self.busy} 0 0 {self.idle} 0 0 0 {steal} 0 0", *["cpu0 1 2 3"] * cpus]
        self.write("proc/stat", "\n".join([*lines, "intr 5 0 0", ""]))

    def memory(self, total, available):
        self.write(
            "proc/meminfo",
            f"MemTotal:       {total // 1024} kB\nMemFree:        {MB} kB\n"
            f"MemAvailable:   {available // 1024} kB\n",
        )

    def process(self, pid, parent=1, cpu=0, ended=0, start=100, rss=0, pss=None, name="(a) b 1)"):
        fields = [0] * 40
        fields[0], fields[10], fields[12], fields[18] = parent, cpu, ended, start
        fields[20] = rss // PAGE
        self.write(f"proc/{pid}/stat", f"7 ({name}) S {' '.join(map(str, fields))}\n")
        if pss is not None:
            self.write(f"proc/{pid}/smaps_rollup", f"1 [rollup]\nRss: 5 kB\nPss: {pss >> 10} kB\n")

    def gone(self, pid):
        (self.proc / str(pid) / "stat").unlink()

    def mount(self, kind, point, own, root="/", options=""):
        where = f"{self.folder}/{point}".replace(" ", "\\040")
        self.mounts.append(f"35 31 0:32 {root} {where} rw shared:5 - {kind} {kind} rw{options}")
        self.member_of.append(f"0::{own}" if kind == "cgroup2" else f"4:cpu,memory:{own}")
        self.write(
            "proc/self/mountinfo", "\n".join(["1 0 8:1 / / rw - ext4 /dev/a rw", *self.mounts])
        )
        self.write("proc/self/cgroup", "\n".join(["9:name=systemd:/x", *self.member_of, ""]))

    def v1(self, path, limit, used, cache=0):
        self.write(f"{path}/memory.limit_in_bytes", f"{limit}\n")
        self.write(f"{path}/memory.usage_in_bytes", f"{used}\n")
        stat = f"inactive_file 7\nactive_file 7\ntotal_inactive_file {cache}\ntotal_active_file 0\n"
        self.write(f"{path}/memory.stat", stat)

    def v2(self, path, limit, used, cache=0, high="max"):
        self.write(f"{path}/memory.max", f"{limit}\n")
        self.write(f"{path}/memory.high", f"{high}\n")
        self.write(f"{path}/memory.current", f"{used}\n")
        self.write(f"{path}/memory.stat", f"anon 5\ninactive_file {cache}\nactive_file 0\n")

    def pressure(self, path, full):
        rest = "avg60=1.00 avg300=2.00 total=5"
        self.write(path, f"some avg10=99.00 {rest}\nfull avg10={full} {rest}\n")

    def load(self, **options):
        return HostLoad(proc=str(self.proc), **options)

    def read(self, **options):
        return self.load(**options).read([])

    def ram(self, **options):
        found = self.read(**options)
        return found.memory_used, found.memory_limit


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


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


class TestMemory:
    def test_of_a_host_without_cgroups(self, machine):
        assert machine.ram() == (4 * GB, 16 * GB)

    def test_v1(self, machine):
        machine.mount("cgroup", "memory", "/job", options=",memory")
        machine.v1("memory/job", 6 * GB, 3 * GB, cache=GB)
        assert machine.ram() == (2 * GB, 6 * GB)

    def test_v1_unlimited(self, machine):
        machine.mount("cgroup", "memory", "/job", options=",memory")
        machine.v1("memory/job", UNLIMITED_V1, 3 * GB)
        assert machine.ram() == (4 * GB, 16 * GB)

    def test_v1_of_another_controller_is_left_out(self, machine):
        machine.mount("cgroup", "cpu", "/job", options=",cpu")
        machine.v1("cpu/job", 6 * GB, 3 * GB)
        assert machine.ram() == (4 * GB, 16 * GB)

    def test_v2(self, machine):
        machine.mount("cgroup2", "cgroup", "/job")
        machine.v2("cgroup/job", 6 * GB, 3 * GB, cache=GB)
        assert machine.ram() == (2 * GB, 6 * GB)

    def test_v2_unlimited(self, machine):
        machine.mount("cgroup2", "cgroup", "/job")
        machine.v2("cgroup/job", "max", 3 * GB)
        assert machine.ram() == (4 * GB, 16 * GB)

    def test_v2_is_throttled_from_its_high_mark_on(self, machine):
        machine.mount("cgroup2", "cgroup", "/job")
        machine.v2("cgroup/job", 6 * GB, 3 * GB, high=4 * GB)
        assert machine.ram() == (3 * GB, 4 * GB)

    def test_v2_nested_where_the_least_room_is(self, machine):
        machine.mount("cgroup2", "cgroup", "/slice/service/job")
        machine.v2("cgroup/slice/service/job", "max", GB)
        machine.v2("cgroup/slice/service", 8 * GB, 2 * GB)
        machine.v2("cgroup/slice", 10 * GB, 7 * GB)
        assert machine.ram() == (7 * GB, 10 * GB)

    def test_v2_in_a_container_with_a_namespace_of_its_own(self, machine):
        machine.mount("cgroup2", "cgroup", "/")
        machine.v2("cgroup", 6 * GB, 3 * GB)
        assert machine.ram() == (3 * GB, 6 * GB)

    @pytest.mark.parametrize("own", ["/docker/abc/job", "/docker/abc/job/../job"])
    def test_a_mount_may_begin_far_below_the_root(self, machine, own):
        machine.mount("cgroup", "memory", own, root="/docker/abc", options=",memory")
        machine.v1("memory/job", UNLIMITED_V1, GB)
        machine.v1("memory", 6 * GB, 3 * GB)
        assert machine.ram() == (3 * GB, 6 * GB)

    def test_a_mount_that_does_not_show_our_group_still_shows_its_root(self, machine):
        machine.mount("cgroup2", "cgroup", "/../elsewhere", root="/docker/abc")
        machine.v2("cgroup", 6 * GB, 3 * GB)
        assert machine.ram() == (3 * GB, 6 * GB)

    def test_hybrid_as_on_this_machine(self, machine):
        machine.mount("cgroup", "memory", "/process_api/x", options=",memory")
        machine.mount("cgroup2", "unified", "/")
        machine.v1("memory/process_api/x", UNLIMITED_V1, GB)
        machine.v1("memory/process_api", 6 * GB, 2 * GB)
        machine.pressure("unified/memory.pressure", "3.50")
        assert machine.read()[2:5] == (2 * GB, 6 * GB, 3.5)

    def test_a_full_host_counts_even_if_the_cgroup_is_empty(self, machine):
        machine.mount("cgroup2", "cgroup", "/job")
        machine.v2("cgroup/job", 6 * GB, GB)
        machine.memory(16 * GB, GB)
        assert machine.ram() == (15 * GB, 16 * GB)

    def test_a_mount_point_with_blanks(self, machine):
        machine.mount("cgroup2", "c group", "/job")
        machine.v2("c group/job", 6 * GB, 3 * GB)
        assert machine.ram() == (3 * GB, 6 * GB)

    def test_more_cache_than_use_is_no_use(self, machine):
        machine.mount("cgroup2", "cgroup", "/job")
        machine.v2("cgroup/job", GB // 2, MB, cache=GB)
        machine.memory(16 * GB, 16 * GB)
        assert machine.read().memory_used == 0

    def test_nothing_known(self, machine):
        machine.write("proc/meminfo", "")
        found = machine.read()
        assert (found.memory_used, found.memory_limit, found.ram) == (0, 0, 0.0)


class TestBudget:
    def fleet(self, machine, count, rss, pss):
        machine.process(10, rss=0, pss=0)
        for pid in range(11, 11 + count):
            machine.process(pid, parent=10, rss=rss, pss=pss)

    def test_far_from_it_rss_is_good_enough(self, machine):
        self.fleet(machine, 3, GB, pss=5)
        load = machine.load(memory_limit=6 * GB).read([10])
        assert (load.memory_used, load.memory_limit) == (3 * GB, 6 * GB)

    def test_near_it_shared_pages_are_counted_once(self, machine):
        self.fleet(machine, 5, GB, pss=GB // 4)
        load = machine.load(memory_limit=6 * GB).read([10])
        assert (load.memory_used, load.memory_limit) == (5 * GB // 4, 6 * GB)

    def test_where_that_cannot_be_read_rss_stands(self, machine):
        self.fleet(machine, 5, GB, pss=None)
        assert machine.load(memory_limit=6 * GB).read([10]).memory_used == 5 * GB

    def test_between_exact_looks_growth_counts_in_full_and_what_went_in_part(self, machine):
        self.fleet(machine, 5, GB, pss=GB // 4)
        load = machine.load(memory_limit=6 * GB)
        load.read([10])
        machine.process(20, parent=10, rss=GB, pss=GB // 4)
        assert load.read([10]).memory_used == 9 * GB // 4
        machine.gone(20)
        machine.gone(11)
        assert load.read([10]).memory_used == GB
        self.fleet(machine, 5, GB, pss=GB // 8)
        found = [load.read([10]).memory_used for _ in range(EXACT_EVERY)]
        assert (found[0], found[-1]) == (5 * GB // 4, 5 * GB // 8)

    def test_the_host_counts_if_it_has_less_room(self, machine):
        machine.memory(16 * GB, 2 * GB)
        assert machine.ram(memory_limit=6 * GB) == (14 * GB, 16 * GB)

    def test_nobody_elses_memory_counts(self, machine):
        machine.process(99, rss=5 * GB)
        assert machine.load(memory_limit=6 * GB).read([10]).memory_used == 0


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
