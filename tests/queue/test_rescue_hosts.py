"""Claims of a leased host: kept by its lease and lost with it, on both databases."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import LeaseLost
from hypervisor.queue.claim import complete
from hypervisor.queue.context import Context
from hypervisor.queue.host import Registration, margin_of
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Worker, parse_token
from hypervisor.queue.lifecycle import LOST_HOSTS_LIMIT
from hypervisor.queue.rescue import sweep
from hypervisor.queue.sql import hosts, steer
from hypervisor.resources.host import LocalHost
from hypervisor.runs import sql
from tests.support.given import NOW

CLAIM, LEASE = 60_000, 30_000
LATE = NOW + LEASE + margin_of(LEASE) + 1
A = Registration("a-1", "a", "boot/a", 1, 10, LEASE)
B = Registration("b-1", "b", "boot/b", 1, 10, LEASE)
ON_A = Worker("w-a", "worker-1", "a", "boot/a", 11, 100)
ALONE = Worker("w-x", "worker-2", "a", "boot/a", 12, 100)


class Elsewhere(LocalHost):
    """A third host, or one of the two."""

    def __init__(self, boot="boot/c"):
        self.name = boot

    def host(self):
        return "c"

    def boot(self):
        return self.name

    def is_gone(self, worker):
        return None if worker.boot != self.name else False


@pytest.fixture
def hv(ledger, monkeypatch):
    monkeypatch.setattr(ledger._db, "is_shared", True, raising=False)
    ledger.write(hosts.register, A, NOW)
    ledger.write(hosts.register, B, NOW)
    return Context(ledger, Elsewhere(), "me")


@pytest.fixture
def held(hv, ledger, add):
    """A task that a worker of host a has claimed."""
    add("one")
    ledger.write(sql.register, ON_A, "", "", NOW, leased_by="a-1")
    [lease] = ledger.claim(ClaimRequest(ON_A, 1, CLAIM), NOW)
    return lease


def test_a_claim_outlives_its_own_lease_while_its_host_renews(hv, ledger, held):
    for at in range(NOW, NOW + 10 * CLAIM, LEASE):
        assert ledger.write(hosts.renew, "a-1", 1, None, at)
        assert ledger.write(hosts.renew, "b-1", 1, None, at)
        assert sweep(hv, at) == ((), 0, ())
    assert complete(hv, held.token, now=NOW + 10 * CLAIM).state == "done"


def test_a_claim_is_lost_with_the_lease_of_its_host_and_costs_the_task_nothing(hv, ledger, held):
    assert sweep(hv, LATE - 1).reclaimed == ()
    ledger.write(hosts.renew, "b-1", 1, None, LATE)
    assert sweep(hv, LATE).reclaimed == (held.task.id,)
    task = ledger.task(held.task.id)
    assert (task.state, task.crashes, task.failures) == ("active", 0, 0)
    assert (
        "host a of worker worker-1 was lost: it did not renew its lease"
        in ledger.detail(task.id).attempts[0].reason
    )
    with pytest.raises(LeaseLost):
        complete(hv, held.token, now=LATE)
    assert {host.id: host.state for host in ledger.read(hosts.hosts)} == {
        "a-1": "gone",
        "b-1": "up",
    }


def test_a_claim_that_arrives_after_its_host_was_declared_gone_is_put_back(hv, ledger, add):
    ledger.write(sql.register, ON_A, "", "", NOW, leased_by="a-1")
    sweep(hv, LATE)
    add("one")
    [lease] = ledger.claim(ClaimRequest(ON_A, 1, CLAIM), LATE)
    assert sweep(hv, LATE + 1).reclaimed == (lease.task.id,)


def test_a_worker_without_a_leased_host_keeps_its_own_lease(hv, ledger, add):
    add("one")
    [lease] = ledger.claim(ClaimRequest(ALONE, 1, CLAIM), NOW)
    assert sweep(hv, LATE).reclaimed == ()
    assert sweep(hv, NOW + CLAIM + 1).reclaimed == (lease.task.id,)
    assert ledger.task(lease.task.id).crashes == 1


def test_on_its_own_host_a_living_worker_is_left_to_stop_by_itself(hv, ledger, held):
    hv.probe.name = "boot/a"
    assert sweep(hv, LATE) == ((), 0, ())
    release = AttemptResult(parse_token(held.token), "release", reason="cut off")
    assert ledger.settle([release], LATE)[0].state == "active"


def test_a_host_that_registers_again_keeps_the_claims_nobody_took(hv, ledger, held):
    assert ledger.write(hosts.register, A, LATE).epoch == 2
    assert sweep(hv, LATE).reclaimed == ()


def lose(hv, ledger, task, number, host="", at=NOW):
    """A host claims the task, and is lost."""
    at += number * 10 * LEASE
    name = host or f"h{number}"
    worker = Worker(f"w-{number}", "worker-1", name, f"boot/{name}", 11, 100)
    ledger.write(hosts.register, A._replace(id=name, name=name, boot=worker.boot), at)
    ledger.write(sql.register, worker, "", "", at, leased_by=name)
    [lease] = ledger.claim(ClaimRequest(worker, 1, CLAIM), at)
    assert lease.task.id == task
    assert sweep(hv, at + 2 * LEASE).reclaimed == (task,)
    return ledger.task(task)


def test_a_task_that_brings_down_one_host_after_another_fails(hv, ledger, add):
    task = add("one")
    for number in range(1, LOST_HOSTS_LIMIT):
        assert lose(hv, ledger, task, number).state == "active"
    lost = lose(hv, ledger, task, LOST_HOSTS_LIMIT)
    assert (lost.state, lost.crashes, lost.failures) == ("failed", 0, 0)
    assert lost.reason == "poisoned: 5 hosts in a row were lost with it (h1, h2, h3, h4, h5)"


def test_after_a_retry_hosts_count_anew(hv, ledger, add):
    task = add("one")
    for number in range(1, LOST_HOSTS_LIMIT + 1):
        lose(hv, ledger, task, number)
    ledger.write(steer.requeue, task, "reopen", "", "me", now=NOW)
    for number in range(LOST_HOSTS_LIMIT + 1, 2 * LOST_HOSTS_LIMIT):
        assert lose(hv, ledger, task, number).state == "active"
    assert lose(hv, ledger, task, 2 * LOST_HOSTS_LIMIT).state == "failed"


def test_a_host_that_is_cut_off_again_and_again_counts_once(hv, ledger, add):
    task = add("one")
    for number in range(1, 3 * LOST_HOSTS_LIMIT):
        assert lose(hv, ledger, task, number, "same").state == "active"
