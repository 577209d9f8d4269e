"""The supervisor's part in notifications: it files notices and starts who delivers, no more."""

from __future__ import annotations

import pytest

from hypervisor.domain.settings import Settings
from hypervisor.operations.context import Context, Equipment
from hypervisor.operations.notify import add_rule
from hypervisor.services.notifier import PAUSE_MS, START_MS, Deliverer, Notifier
from hypervisor.store.ledger import Ledger
from hypervisor.store.sqlite import SqliteDatabase
from tests.operations.test_notify import NOW, Host, Mailbox, rule_of, settle
from tests.support.databases import Sqlite


class Launcher:
    def __init__(self):
        self.started = 0

    def start_notifier(self):
        self.started += 1


@pytest.fixture
def launcher():
    return Launcher()


@pytest.fixture
def mailbox():
    return Mailbox()


@pytest.fixture
def hv(tmp_path, launcher, mailbox):
    store = Ledger(SqliteDatabase(Sqlite(tmp_path / "store.db").where, relaxed=True))
    made = Equipment(launcher, None, Settings(), courier=mailbox)  # type: ignore[arg-type]
    yield Context(store, Host("boot/1"), "tester", equip=lambda: made)
    store.close()


def finish(hv, *titles):
    from hypervisor.domain.task import NewTask
    from hypervisor.operations.add import add

    add(hv, [NewTask(title) for title in titles])
    settle(hv, "complete", len(titles))


class TestNotifier:
    def test_nothing_is_started_for_nothing(self, hv, launcher):
        notifier = Notifier(hv)
        notifier.tick(NOW)
        add_rule(hv, "log", ["failed"], ["x"])
        finish(hv, "a")
        notifier.tick(NOW + PAUSE_MS)
        assert launcher.started == 0

    def test_what_is_due_is_left_to_a_process_of_its_own(self, hv, launcher, mailbox):
        add_rule(hv, "log", ["done"], ["x"])
        finish(hv, "a")
        notifier = Notifier(hv)
        notifier.tick(NOW)
        notifier.tick(NOW + PAUSE_MS)
        assert launcher.started == 1, "it has not had the time to come up"
        notifier.tick(NOW + START_MS)
        assert launcher.started == 2
        assert mailbox.got == []
        assert hv.store.notices_waiting()["log"][0] == 1

    def test_it_does_not_look_all_the_time(self, hv, launcher):
        notifier = Notifier(hv)
        add_rule(hv, "log", ["done"], ["x"])
        notifier.tick(NOW)
        finish(hv, "a")
        notifier.tick(NOW + PAUSE_MS - 1)
        assert hv.store.notices_waiting() == {}
        notifier.last_look()
        assert hv.store.notices_waiting()["log"][0] == 1
        assert launcher.started == 1

    def test_a_receiver_that_is_left_alone_needs_nobody(self, hv, launcher):
        add_rule(hv, "log", ["done"], ["x"])
        finish(hv, "a")
        notifier = Notifier(hv)
        notifier.tick(NOW)
        notice = hv.store.take_notice("log", "boot/1", 1_000, NOW)
        hv.store.notice_missed(notice, "closed", NOW + START_MS)
        notifier.tick(NOW + START_MS)
        assert launcher.started == 1
        notifier.tick(rule_of(hv).due_at + START_MS)
        assert launcher.started == 2

    def test_an_address_of_another_host_needs_nobody_here(self, hv, launcher, mailbox):
        add_rule(hv, "log", ["done"], address="https://example.org/x")
        mailbox.addresses.clear()
        finish(hv, "a")
        Notifier(hv).tick(NOW)
        assert launcher.started == 0
        assert hv.store.notices_waiting()["log"][0] == 1


class TestDeliverer:
    def test_delivers_and_has_no_more_to_do(self, hv, mailbox):
        add_rule(hv, "log", ["done"], ["x"])
        finish(hv, "a", "b")
        deliverer = Deliverer(hv)
        while deliverer.tick(hv.now()):
            for thread in deliverer._at_work.values():
                thread.join(30)
        assert mailbox.said == ["done: a", "done: b"]
