"""Workers beyond one per core: while commands wait, and never when they need the CPU."""

from __future__ import annotations

import pytest

from hypervisor.resources.headroom import AT_MOST, HOLD_MS, PER_CORE, Headroom
from hypervisor.resources.load import has_cpu_quota
from hypervisor.resources.zones import Load

TICK = 250


class Host:
    """Commands on a host, each of which needs a share of a core, as far as there is CPU."""

    def __init__(self, cores=4, cpus=4, tasks=1000):
        self.headroom = Headroom(cores, cpus)
        self.cpus, self.tasks, self.now = cpus, tasks, 1_800_000_000_000
        self.others = self.disk = 0.0

    def run(self, seconds, need):
        limits = []
        for _ in range(int(seconds * 1000) // TICK):
            busy = min(self.headroom.limit, self.tasks)
            own = min(busy * need / self.cpus, 1 - self.others)
            load = Load(min(own + self.others, 1.0), own, 0, 0, disk=self.disk)
            self.now += TICK
            self.headroom.tick(self.now, load, busy, self.tasks > busy)
            limits.append(self.headroom.limit)
        return limits


def test_commands_that_wait_get_more_workers_within_seconds():
    host = Host()
    limits = host.run(4, need=0.01)
    assert limits[:3] == [4, 4, 4] and limits[-1] == PER_CORE * 4
    assert sorted(limits) == limits and {*limits} == {4, 8, 16, 32}


def test_a_large_host_has_fewer_per_core():
    assert Host(cores=64, cpus=64).run(10, need=0.01)[-1] == 64 + AT_MOST


@pytest.mark.parametrize("need", [0.25, 0.5, 1.0])
def test_commands_that_need_the_cpu_do_not(need):
    assert {*Host().run(60, need)} == {4}


@pytest.mark.parametrize("others", [0.6, 1.0])
def test_nor_while_others_use_it(others):
    host = Host()
    host.others = others
    assert {*host.run(60, need=0.01)} == {4}


def test_nor_while_they_wait_for_the_disk():
    host = Host()
    host.disk = 0.5
    assert {*host.run(60, need=0.01)} == {4}


def test_nor_without_tasks_for_them():
    assert {*Host(tasks=4).run(60, need=0.01)} == {4}


def test_nor_if_the_cpu_time_is_limited_otherwise():
    assert {*Host(cpus=0).run(0, need=0.01)} | {Headroom(4, 0)._most} == {4}


def test_what_begins_to_need_the_cpu_goes_back_to_one_per_core_and_stays_there():
    host = Host()
    assert host.run(4, need=0.01)[-1] == 32
    limits = host.run(HOLD_MS / 1000, need=1.0)
    assert limits[-1] == 4 and sorted(limits, reverse=True) == limits


def test_some_cores_of_a_larger_machine():
    """Bound to 2 of 64 cores, the machine looks idle although ours are busy."""
    assert {*Host(cores=2, cpus=64).run(60, need=1.0)} == {2}


def test_the_next_work_starts_with_one_per_core():
    host = Host()
    host.run(4, need=0.01)
    host.tasks = 0
    host.run(1, need=0.0)
    host.tasks = 1000
    assert host.run(0.25, need=1.0) == [4]


@pytest.mark.parametrize(
    "content, expected", [("max 100000", False), ("200000 100000", True), (None, False)]
)
def test_a_cgroup_with_a_cpu_quota_is_noticed(tmp_path, content, expected):
    group = tmp_path / "cgroup" / "mine"
    (tmp_path / "proc" / "self").mkdir(parents=True)
    group.mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/mine\n")
    mount = f"30 29 0:26 / {tmp_path}/cgroup rw - cgroup2 cgroup2 rw\n"
    (tmp_path / "proc" / "self" / "mountinfo").write_text(mount)
    if content:
        (group / "cpu.max").write_text(content + "\n")
    assert has_cpu_quota(str(tmp_path / "proc")) is expected
