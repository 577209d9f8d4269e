"""Hosts that are cut off, paused or killed: no task is lost, none runs twice at the same time.

Real supervisors and workers in pid namespaces of their own, a proxy in front of PostgreSQL, and a
witness file that every attempt writes to while it runs.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

import hypervisor
from hypervisor.queue.sql import hosts
from tests.support import fleet
from tests.support.fleet import (
    FleetHost,
    Submitter,
    check_end,
    overlaps,
    rows,
    running_on,
    seen,
    states,
    until,
)

pytestmark = pytest.mark.skipif(not fleet.can_unshare(), reason="needs pid namespaces (root)")


@pytest.fixture
def witness(tmp_path):
    path = tmp_path / "witness"
    path.touch()
    return path


@pytest.fixture
def hv(postgres_url):
    with hypervisor.open(postgres_url) as opened:
        yield opened


@pytest.fixture
def host(postgres_url, tmp_path):
    started = []

    def start(name, **options):
        started.append(FleetHost(name, postgres_url, tmp_path, **options))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture
def submit(hv, witness, tmp_path):
    return Submitter(hv, witness, tmp_path)


def cut_off(url, witness, host, how):
    """Two hosts at work; the first is cut off in the given way while it runs tasks."""
    first, second = host("a"), host("b")
    attempts = until(lambda: len(found := running_on(url, "a")) == 2 and found, "a does not work")
    until(lambda: seen(witness, attempts), "nothing runs")
    how(first)
    return first, second, attempts


def test_a_host_whose_network_is_gone_stops_before_others_start_again(
    hv, host, submit, witness, postgres_url
):
    submit(4, 5)
    first, _, attempts = cut_off(postgres_url, witness, host, lambda h: h.proxy.cut())
    check_end(postgres_url, witness, 4)
    crashes = rows(postgres_url, "SELECT sum(crashes), sum(failures) FROM hypervisor.tasks")
    assert crashes == [(0, 0)], "the loss of a host costs a task nothing"
    again = rows(postgres_url, "SELECT count(*) FROM hypervisor.tasks WHERE attempt = 2")
    assert again == [(len(attempts),)]
    first.proxy.heal()
    until(
        lambda: [h.epoch for h in hv.store.read(hosts.hosts) if h.launcher == "a"] == [3],
        "a does not come back",
    )


@pytest.mark.long
def test_a_host_that_is_disconnected_and_comes_back_in_time_keeps_its_attempts(
    hv, host, submit, witness, postgres_url
):
    submit(2, 8)
    first = host("a", lease="10s")
    until(lambda: len(running_on(postgres_url, "a")) == 2, "a does not work")
    until(lambda: len(set(Path(witness).read_text().split()[::2])) == 2, "nothing runs")
    first.proxy.cut(fleet.REFUSE)
    time.sleep(5)
    first.proxy.heal()
    check_end(postgres_url, witness, 2)
    assert rows(postgres_url, "SELECT max(attempt) FROM hypervisor.tasks") == [(1,)]


@pytest.mark.long
def test_a_host_that_is_paused_and_woken_late_stops_what_it_ran(
    hv, host, submit, witness, postgres_url
):
    submit(4, 6)
    first, _, attempts = cut_off(postgres_url, witness, host, lambda h: h.signal(signal.SIGSTOP))
    again = [(task, number + 1) for task, number in attempts]
    until(lambda: seen(witness, again), "nobody took over")
    first.signal(signal.SIGCONT)
    until(lambda: states(postgres_url) == {"done": 4}, f"not done: {states(postgres_url)}")
    late = [b[0] - a[1] for a, b in overlaps(witness) if (a[1] - b[0]) > 500_000_000]
    assert late == [], "woken processes are stopped within half a second"


@pytest.mark.long
def test_a_host_that_is_killed_loses_its_tasks_to_others(hv, host, submit, witness, postgres_url):
    submit(4, 4)
    cut_off(postgres_url, witness, host, lambda h: h.process.kill())
    check_end(postgres_url, witness, 4)


@pytest.mark.long
def test_workers_keep_the_lease_without_their_supervisor(hv, host, submit, witness, postgres_url):
    submit(4, 7)
    stop_supervisor = lambda h: h.signal(signal.SIGSTOP, h.pids_of_ours()[:1])  # noqa: E731
    cut_off(postgres_url, witness, host, stop_supervisor)
    until(lambda: states(postgres_url) == {"done": 4}, f"not done: {states(postgres_url)}")
    assert rows(postgres_url, "SELECT max(attempt) FROM hypervisor.tasks") == [(1,)]
    assert overlaps(witness) == []


@pytest.mark.long
def test_a_late_result_is_refused_and_kept(hv, host, submit, witness, postgres_url):
    [task, *_] = submit(1, 8, on_cut="finish")
    first = host("a")
    until(lambda: seen(witness, [(task, 1)]), "nothing runs")
    first.proxy.cut()
    host("b")
    until(lambda: seen(witness, [(task, 2)]), "nobody took over")
    until(lambda: f"{task}.1" not in last_lines(witness), "the first attempt does not end")
    first.proxy.heal()
    kept = "SELECT text FROM hypervisor.receipts WHERE text LIKE 'late result%%'"
    [(text,)] = until(lambda: rows(postgres_url, kept), "nothing was kept")
    assert text.startswith("late result of attempt 1 (complete) kept, not used")
    until(lambda: states(postgres_url) == {"done": 1}, "not done")
    assert overlaps(witness), "without a fence, both run at the same time"


def last_lines(witness):
    """The attempts that have just written."""
    return {line.split()[0] for line in Path(witness).read_text().splitlines()[-30:]}


@pytest.mark.long
def test_running_attempts_need_no_connection_and_can_still_be_stopped(
    hv, host, submit, witness, postgres_url
):
    tasks = submit(4, 60)
    host("a", lease="30s", workers=4)
    until(lambda: len(running_on(postgres_url, "a")) == 4, "a does not work")
    count = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        f"AND pid <> pg_backend_pid() AND pid <> {hv.store._connection.info.backend_pid}"
    )
    until(lambda: rows(postgres_url, count)[0][0] <= 2, "connections stay open", 20)
    started = time.monotonic()
    hv.cancel(tasks[0], "not wanted")
    until(lambda: states(postgres_url).get("cancelled"), "it is not stopped", 20)
    assert time.monotonic() - started < 10
