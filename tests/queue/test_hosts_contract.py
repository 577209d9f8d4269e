"""Hosts in the store: registering, renewing, being declared gone; on both databases."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import NotFound
from hypervisor.queue.host import HostStatus, Registration, host_id, margin_of
from hypervisor.queue.sql import hosts
from tests.support.given import NOW

LEASE = 60_000
MARGIN = margin_of(LEASE)
HERE = Registration("a-1", "a", "boot/1", 7, 70, LEASE, "ray:n1", ("gpu",), {"cpus": 2}, {"x": 1})
ALONE = HERE._replace(lease_ms=0)


@pytest.fixture
def db(ledger):
    return ledger


def test_a_registered_host_is_listed_with_all_its_facts(db):
    assert db.write(hosts.register, HERE, NOW) == (1, NOW + LEASE)
    [host] = db.read(hosts.hosts)
    assert host.state == "up" and host[:3] == HERE[:3] and host.launcher == "ray:n1"
    assert (host.labels, host.resources, host.versions) == HERE[7:]
    assert (host.lease_until, host.registered_at, host.seen_at) == (NOW + LEASE, NOW, NOW)
    assert db.read(hosts.host, "a-1") == host and db.read(hosts.host, "b") is None


def test_without_a_lease_a_host_is_never_declared_gone(db):
    assert db.write(hosts.register, ALONE, NOW) == (1, 0)
    assert db.write(hosts.declare_gone, NOW + 10**9) == []
    assert db.read(hosts.hosts)[0].state == "up"


def test_a_renewal_extends_the_lease_and_publishes_the_status(db):
    db.write(hosts.register, HERE, NOW)
    status = HostStatus("safe", 3, {"zone": "safe"})
    assert db.write(hosts.renew, "a-1", 1, status, NOW + 5) == NOW + 5 + LEASE
    [host] = db.read(hosts.hosts)
    assert (host.zone, host.workers, host.status) == status
    assert db.write(hosts.renew, "a-1", 1, None, NOW + 9) == NOW + 9 + LEASE
    assert db.read(hosts.hosts)[0][15:] == status
    assert db.read(hosts.hosts)[0].seen_at == NOW + 9


def test_a_new_supervisor_continues_the_lease_of_its_host(db):
    db.write(hosts.register, HERE, NOW)
    later = NOW + LEASE + MARGIN
    assert db.write(hosts.register, HERE._replace(pid=8), later) == (1, later + LEASE)
    assert db.read(hosts.hosts)[0].pid == 8


def test_a_host_is_declared_gone_only_after_its_lease_and_the_margin(db):
    db.write(hosts.register, HERE, NOW)
    assert db.write(hosts.declare_gone, NOW + LEASE + MARGIN) == []
    assert db.write(hosts.declare_gone, NOW + LEASE + MARGIN + 1) == ["a-1"]
    assert db.write(hosts.declare_gone, NOW + LEASE + MARGIN + 1) == []
    [event] = db.events(0, 9)
    assert event.kind == "host" and event.data["state"] == "gone"


def test_a_late_renewal_is_refused_and_the_host_registers_under_a_new_epoch(db):
    db.write(hosts.register, HERE, NOW)
    db.write(hosts.declare_gone, NOW + 2 * LEASE)
    assert db.write(hosts.renew, "a-1", 1, None, NOW + 2 * LEASE) is None
    assert db.write(hosts.renew, "a-1", 2, None, NOW + 2 * LEASE) is None
    epoch, _ = db.write(hosts.register, HERE, NOW + 2 * LEASE)
    assert epoch == 3 and db.read(hosts.hosts)[0].state == "up"
    assert db.write(hosts.renew, "a-1", 1, None, NOW + 2 * LEASE) is None
    assert db.write(hosts.renew, "a-1", 3, None, NOW + 2 * LEASE) == NOW + 3 * LEASE


def test_a_host_that_was_late_but_not_declared_gone_has_a_new_epoch_too(db):
    db.write(hosts.register, HERE, NOW)
    assert db.write(hosts.register, HERE, NOW + LEASE + MARGIN + 1).epoch == 2


def test_a_host_that_left_is_gone_and_has_no_lease(db):
    db.write(hosts.register, HERE, NOW)
    db.write(hosts.leave, "a-1", 2)
    assert db.read(hosts.hosts)[0].state == "up"
    db.write(hosts.leave, "a-1", 1)
    assert db.read(hosts.hosts)[0].state == "gone"
    assert db.write(hosts.renew, "a-1", 1, None, NOW) is None


def test_draining_is_kept_by_a_new_supervisor(db):
    db.write(hosts.register, HERE, NOW)
    db.write(hosts.set_state, "a-1", "draining", "me", NOW)
    db.write(hosts.register, HERE, NOW + 1)
    assert db.read(hosts.hosts)[0].state == "draining"
    with pytest.raises(NotFound, match="no such host: b"):
        db.write(hosts.set_state, "b", "draining", "me", NOW)


def test_the_database_has_its_own_clock(db):
    before = db.now()
    until = db.write(hosts.register, HERE).until
    assert before - 1000 <= until - LEASE <= db.now() + 1000


def test_users_and_boots_of_a_machine_are_different_hosts():
    ids = {host_id("a", "b", 1), host_id("a", "b", 2), host_id("a", "c", 1)}
    assert len(ids) == 3 and all(id.startswith("a-") for id in ids)
