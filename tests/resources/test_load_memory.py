"""How much memory is used and how much there is, by host, cgroup and budget."""

import pytest

from hypervisor.resources.load import EXACT_EVERY
from tests.resources.made_up_host import GB, MB

UNLIMITED_V1 = 9223372036854771712


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
