"""Sweeping: no claim is taken from a holder that may be alive; due tasks become ready."""

import pytest

from hypervisor.core.errors import InvalidInput, LeaseLost
from hypervisor.queue.add import add
from hypervisor.queue.claim import claim, complete, heartbeat
from hypervisor.queue.context import Context
from hypervisor.queue.queries import show
from hypervisor.queue.rescue import INTERVAL, sweep, sweep_if_due
from hypervisor.queue.task import NewTask
from hypervisor.resources.host import LocalHost
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.ledger import Ledger

NOW = 1_800_000_000_000
LEASE = 60_000


class FakeHost(LocalHost):
    """A host with scripted processes."""

    def __init__(self):
        self.living = {1: 100, 2: 200}
        self.name, self.boot_name, self.asked = "here", "boot/1", 0

    def host(self):
        return self.name

    def boot(self):
        return self.boot_name

    def process_start(self, pid):
        return self.living.get(pid)

    def is_gone(self, worker):
        self.asked += 1
        if worker.pid <= 0 or worker.boot != self.boot_name:
            return None
        return self.living.get(worker.pid) != worker.pid_start


@pytest.fixture
def hv(tmp_path):
    context = Context(
        Ledger(SqliteDatabase(str(tmp_path / "x.db"), relaxed=True)), FakeHost(), "me"
    )
    yield context
    context.close()


def claimed(hv, pid=0, count=1, **more):
    add(hv, [NewTask(f"t{n}", **more) for n in range(count)], now=NOW)
    leases = claim(hv, "w", limit=count, lease=LEASE, pid=pid, now=NOW)
    assert len(leases) == count
    return leases


def state(hv, lease):
    return show(hv, lease.task.id).detail.task.state


def test_a_living_holder_keeps_its_claim_however_late(hv):
    (lease,) = claimed(hv, pid=1)
    for at in (NOW + LEASE, NOW + LEASE + 1, NOW + 1000 * LEASE):
        swept = sweep(hv, at)
        assert swept.reclaimed == ()
    assert swept.overdue == (lease.task.id,)
    assert state(hv, lease) == "in_progress"
    assert complete(hv, lease.token, now=at).state == "done"


@pytest.mark.parametrize("living", [{}, {1: 101}])
def test_a_dead_holder_loses_its_claim_at_once(hv, living):
    """Gone, or its pid given to another process: no need to wait for the lease."""
    (lease,) = claimed(hv, pid=1)
    hv.probe.living = living
    assert sweep(hv, NOW + 1).reclaimed == (lease.task.id,)
    detail = show(hv, lease.task.id).detail
    assert (detail.task.state, detail.task.crashes) == ("active", 1)
    assert detail.attempts[0].outcome == "crashed" and "process 1" in str(detail.attempts[0].reason)
    with pytest.raises(LeaseLost):
        complete(hv, lease.token, now=NOW + 2)


def test_a_holder_without_a_process_keeps_its_claim_until_the_lease_has_lapsed(hv):
    (lease,) = claimed(hv)
    assert sweep(hv, NOW + LEASE).reclaimed == ()
    heartbeat(hv, [lease.token], lease=LEASE, now=NOW + LEASE)
    assert sweep(hv, NOW + LEASE + 1).reclaimed == ()
    assert sweep(hv, NOW + 2 * LEASE + 1).reclaimed == (lease.task.id,)


def test_a_holder_on_another_host_keeps_its_claim_until_the_lease_has_lapsed(hv):
    (lease,) = claimed(hv, pid=1)
    hv.probe.boot_name, hv.probe.living = "another boot", {}
    assert sweep(hv, NOW + LEASE).reclaimed == ()
    assert sweep(hv, NOW + LEASE + 1).reclaimed == (lease.task.id,)


def test_the_third_crash_gives_the_task_up(hv):
    (lease,) = claimed(hv, pid=1)
    for crash in range(1, 4):
        hv.probe.living = {}
        sweep(hv, NOW + crash)
        if crash < 3:
            hv.probe.living = {1: 100 + crash}
            hv.workers.clear()
            (lease,) = claim(hv, "w", pid=1, now=NOW + crash)
    task = show(hv, lease.task.id).detail.task
    assert (task.state, task.crashes) == ("failed", 3) and "poisoned" in str(task.reason)


def test_only_the_dead_workers_tasks_go_back(hv):
    (dead,) = claimed(hv, pid=1)
    (alive,) = claimed(hv, pid=2)
    hv.probe.living = {2: 200}
    assert sweep(hv, NOW + 1).reclaimed == (dead.task.id,)
    assert (state(hv, dead), state(hv, alive)) == ("active", "in_progress")


def test_a_worker_is_looked_at_once_however_much_it_holds(hv):
    claimed(hv, pid=1, count=20)
    hv.probe.asked = 0
    sweep(hv, NOW + 1)
    assert hv.probe.asked == 1


def test_a_claim_that_was_renewed_in_the_meantime_is_not_taken(hv):
    (lease,) = claimed(hv)
    late = NOW + LEASE + 1
    holders = hv.store.holders(hv.probe.boot(), late)
    heartbeat(hv, [lease.token], lease=LEASE, now=late)
    assert hv.store.reclaim(holders[0], "too late", late) is False
    assert state(hv, lease) == "in_progress"


def test_what_is_due_starts(hv):
    add(hv, [NewTask("later", start_at=NOW + 500)], now=NOW)
    assert sweep(hv, NOW + 499).started == 0
    assert claim(hv, "w", now=NOW + 499) == ()
    assert sweep(hv, NOW + 500).started == 1
    assert len(claim(hv, "w", now=NOW + 500)) == 1


def test_a_claim_sweeps_at_most_once_a_second(hv, monkeypatch):
    swept = []
    monkeypatch.setattr("hypervisor.queue.rescue.sweep", lambda hv, at: swept.append(at))
    for at in (NOW, NOW + INTERVAL - 1, NOW + INTERVAL, NOW - 5):
        sweep_if_due(hv, at)
        if swept:
            hv.swept_at = swept[-1]
    assert swept == [NOW, NOW + INTERVAL, NOW - 5]  # a clock set back must not stop it


def test_claiming_takes_over_from_the_dead(hv):
    (lease,) = claimed(hv, pid=1)
    hv.probe.living = {2: 200}
    (again,) = claim(hv, "other", pid=2, now=NOW + INTERVAL)
    assert again.task.id == lease.task.id and again.token != lease.token


def test_a_claim_for_a_process_that_does_not_exist_is_refused(hv):
    add(hv, [NewTask("x")], now=NOW)
    with pytest.raises(InvalidInput, match="no such process: 99"):
        claim(hv, "w", pid=99, now=NOW)
    assert len(claim(hv, "w", pid=1, now=NOW)) == 1


def test_the_many_claims_of_the_living_hide_none_of_the_dead(hv):
    add(hv, [NewTask(f"t{n}") for n in range(1_002)], now=NOW)
    assert len(claim(hv, "busy", limit=1_000, lease=LEASE, pid=1, now=NOW)) == 1_000
    (dead,) = claim(hv, "dead", lease=2 * LEASE, pid=2, now=NOW)
    (elsewhere,) = claim(hv, "elsewhere", lease=2 * LEASE, now=NOW)
    del hv.probe.living[2]
    assert sweep(hv, NOW + 1).reclaimed == (dead.task.id,)
    swept = sweep(hv, NOW + 2 * LEASE + 1)
    assert (swept.reclaimed, len(swept.overdue)) == ((elsewhere.task.id,), 1_000)
