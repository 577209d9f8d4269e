"""Two hosts at work, while their clocks are wrong or PostgreSQL crashes again and again."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hypervisor
from hypervisor.queue.lifecycle import LOST_HOSTS_LIMIT
from hypervisor.selftest.invariants import check_invariants
from tests.support import fleet, wrong_clock
from tests.support.crashing_postgres import Cluster
from tests.support.fleet import (
    FleetHost,
    Submitter,
    check_end,
    rows,
    running_on,
    seen,
    until,
)
from tests.support.hosts import Host

pytestmark = pytest.mark.skipif(not fleet.can_unshare(), reason="needs pid namespaces (root)")
HOUR = 3600
LEASE = '[hosts]\nlease = "2s"\n'


@pytest.fixture
def witness(tmp_path):
    path = tmp_path / "witness"
    path.touch()
    return path


@pytest.fixture
def start(tmp_path):
    started = []

    def start(name, url, **options):
        started.append(FleetHost(name, url, tmp_path, **options))
        return started[-1]

    yield start
    for host in started:
        host.end()


def test_a_clock_that_is_set_wrong_is_read_wrong(tmp_path):
    for by in (HOUR, -HOUR):
        env = wrong_clock.environment(tmp_path, by)
        printed = subprocess.check_output(
            [sys.executable, "-I", "-c", "import time; print(time.time_ns())"], env=env
        )
        assert abs(int(printed) / 1e9 - time.time() - by) < 60


def test_hosts_whose_clocks_are_an_hour_off_share_work(tmp_path, postgres_url, start, witness):
    """Each keeps its claims while it lives, whatever the clocks say, and loses them soon after."""
    clocks = {"early": HOUR, "late": -HOUR}
    hosts = {
        name: start(name, postgres_url, env=wrong_clock.environment(tmp_path, by))
        for name, by in clocks.items()
    }
    with hypervisor.open(postgres_url) as hv:
        submit = Submitter(hv, witness, tmp_path)
        submit(8, 5)  # longer than the lease
        running = {
            name: until(
                lambda name=name: len(found := running_on(postgres_url, name)) == 2 and found,
                f"{name} does not work",
            )
            for name in clocks
        }
        assert all(is_wrong(host) for host in hosts.values())
        until(lambda: seen(witness, [*running["early"], *running["late"]]), "nothing runs")
        until(lambda: len(ended(postgres_url)) >= 4, "they do not end")
        assert {attempt for _, attempt in ended(postgres_url)} == {1}, "a claim was taken away"
        until(lambda: running_on(postgres_url, "early"), "early has nothing left")
        hosts["early"].process.kill()  # late must notice, although its clock is two hours behind
        check_end(postgres_url, witness, 8)
        check_invariants(hv)


def is_wrong(host):
    """Whether all its own processes have the library that sets their clock."""
    maps = [Path(f"/proc/{pid}/maps").read_text() for pid in host.pids_of_ours()]
    return len(maps) > 1 and all("clock.so" in text for text in maps)


def ended(url):
    return rows(url, "SELECT id, attempt FROM hypervisor.tasks WHERE state = 'done'")


def test_postgres_crashes_again_and_again_while_two_hosts_work(
    postgres_server, tmp_path, start, witness, long
):
    """Attempts go on, and each result is stored once."""
    crashes, dice = 20 if long else 2, random.Random(20)
    cluster = Cluster()
    try:
        with hypervisor.open(cluster.url) as hv:
            tasks = 10 * crashes + 10
            Submitter(hv, witness, tmp_path)(tasks, 0.3)
        for name in ("a", "b"):
            start(name, cluster.url, lease="30s")
        done = "SELECT count(*) FROM hypervisor.tasks WHERE state = 'done'"
        for crash in range(crashes):
            at_least = 10 * crash + dice.randint(3, 9)
            until(lambda n=at_least: rows(cluster.url, done)[0][0] >= n, "they do not work")
            cluster.crash()
            cluster.start_again()
        check_end(cluster.url, witness, tasks)
        again = rows(cluster.url, "SELECT id FROM hypervisor.tasks WHERE attempt > 1")
        assert again == [], "an outage that is shorter than the lease costs nothing"
        with hypervisor.open(cluster.url) as hv:
            check_invariants(hv)
    finally:
        cluster.close()


@pytest.mark.long
def test_a_task_that_brings_down_every_host_fails(tmp_path, postgres_url, witness):
    with hypervisor.open(postgres_url) as hv:
        [task] = Submitter(hv, witness, tmp_path)(1, 600)
    failed = "SELECT reason FROM hypervisor.tasks WHERE state = 'failed'"
    names = [f"h{number}" for number in range(1, LOST_HOSTS_LIMIT + 1)]
    for number, name in enumerate(names, 1):
        host = Host(tmp_path, name, postgres_url, LEASE)
        try:
            host.start()
            until(lambda n=number: seen(witness, [(task, n)]), "it does not start")
        finally:
            host.kill()
    last = Host(tmp_path, "last", postgres_url, LEASE)
    try:
        last.start()
        [(reason,)] = until(lambda: rows(postgres_url, failed), "it goes on")
    finally:
        last.kill()
    assert reason == f"poisoned: 5 hosts in a row were lost with it ({', '.join(names)})"
