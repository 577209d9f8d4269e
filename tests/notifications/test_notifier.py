"""The supervisor's part in notifications: it only creates notices and starts the process that
delivers them."""

from __future__ import annotations

import threading

import pytest

from hypervisor.core.errors import StoreUnavailable
from hypervisor.notifications import deliverer as delivering
from hypervisor.notifications import notifier as noticing
from hypervisor.notifications.deliverer import MAX_CONCURRENT, Deliverer
from hypervisor.notifications.notifier import PAUSE_MS, START_MS, Notifier
from hypervisor.notifications.notify import add_rule, remove_rule
from hypervisor.notifications.sql import notices
from hypervisor.queue.context import Context
from hypervisor.store.sqlite import SqliteDatabase
from tests.notifications.test_notify import NOW, Host, Mailbox, rule_of, settle
from tests.support.databases import Sqlite
from tests.support.intercept import intercept
from tests.support.ledger import Ledger
from tests.support.parts import parts


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
    yield Context(store, Host("boot/1"), "tester", parts=parts(launcher=launcher, courier=mailbox))
    store.close()


def finish(hv, *titles):
    from hypervisor.queue.add import add
    from hypervisor.queue.task import NewTask

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

    def test_a_clock_that_was_put_back_stops_nothing(self, hv, launcher):
        notifier = Notifier(hv)
        add_rule(hv, "log", ["done"], ["x"])
        finish(hv, "a")
        notifier.tick(NOW)
        finish(hv, "b")
        notifier.tick(NOW - 3_600_000)
        assert hv.store.notices_waiting()["log"][0] == 2
        assert launcher.started == 2

    def test_the_last_look_is_never_too_soon(self, hv, launcher, monkeypatch):
        """However soon after the previous one, and after the last start."""
        for pause in ("PAUSE_MS", "START_MS"):
            monkeypatch.setattr(noticing, pause, 10**9)
        notifier = Notifier(hv)
        add_rule(hv, "log", ["done"], ["x"])
        finish(hv, "a")
        notifier.tick(hv.now())
        finish(hv, "b")
        notifier.last_look()
        assert hv.store.notices_waiting()["log"][0] == 2
        assert launcher.started == 2

    def test_a_store_that_is_away_does_not_keep_the_supervisor(self, hv, launcher, monkeypatch):
        add_rule(hv, "log", ["done"], ["x"])
        finish(hv, "a")
        intercept(monkeypatch, hv.store, notices.waiting, away)
        Notifier(hv).last_look()
        assert launcher.started == 0

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


def away(*_):
    raise StoreUnavailable("the store is away for a moment")


class Slow(Mailbox):
    """A receiver that does not answer until it is opened."""

    def __init__(self):
        super().__init__()
        self.opens = threading.Event()
        self.came = threading.Semaphore(0)

    def deliver(self, rule, notice, show_output=False):
        self.came.release()
        assert self.opens.wait(180)
        return super().deliver(rule, notice, show_output)


class TestDeliverer:
    @pytest.fixture
    def slow(self, hv):
        found = Slow()
        hv.courier = found
        yield found
        found.opens.set()

    def test_one_at_a_time_for_each_rule(self, hv, slow):
        add_rule(hv, "log", ["done"], ["x"])
        finish(hv, "a", "b")
        deliverer = Deliverer(hv)
        deliverer.tick(hv.now())
        first = dict(deliverer._threads)
        assert slow.came.acquire(timeout=180)
        for _ in range(3):
            assert deliverer.tick(hv.now())
        assert deliverer._threads == first
        slow.opens.set()
        first["log"].join(180)
        assert slow.said == ["done: a", "done: b"]

    def test_no_receiver_holds_up_another_and_not_all_work_at_once(self, hv, slow):
        for number in range(MAX_CONCURRENT + 1):
            add_rule(hv, f"log{number:02}", ["done"], ["x"])
        finish(hv, "a")
        deliverer = Deliverer(hv)
        deliverer.tick(hv.now())
        for _ in range(MAX_CONCURRENT):
            assert slow.came.acquire(timeout=180)
        deliverer.tick(hv.now())
        assert len(deliverer._threads) == MAX_CONCURRENT
        slow.opens.set()
        deliverer.run()
        assert len(slow.got) == MAX_CONCURRENT + 1

    def test_it_stays_while_a_notice_is_being_delivered(self, hv, slow, monkeypatch):
        """A delivery in progress is waited for, even if nothing else is left to do."""
        monkeypatch.setattr(delivering, "LINGER", 0.2)
        add_rule(hv, "log", ["done"], ["x"])
        finish(hv, "a")
        deliverer = Deliverer(hv)
        running = threading.Thread(target=deliverer.run)
        running.start()
        assert slow.came.acquire(timeout=180)
        remove_rule(hv, "log")  # nothing waits any more
        running.join(1.0)  # five times as long as it would stay for nothing
        assert running.is_alive() and not deliverer._is_ending.is_set()
        slow.opens.set()
        running.join(180)
        assert not running.is_alive() and slow.said == ["done: a"]

    def test_when_it_ends_it_begins_nothing_and_waits_for_what_it_began(
        self, hv, slow, monkeypatch
    ):
        add_rule(hv, "log", ["done"], ["x"])
        finish(hv, "a", "b")
        deliverer = Deliverer(hv)
        deliverer.tick(hv.now())
        assert slow.came.acquire(timeout=180)
        monkeypatch.setattr(delivering, "LINGER", 0.0)
        running = threading.Thread(target=deliverer.run)
        running.start()
        assert deliverer._is_ending.wait(180)
        assert running.is_alive(), "it waits"
        slow.opens.set()
        running.join(180)
        assert slow.said == ["done: a"] and hv.store.notices_waiting()["log"][0] == 1

    def test_a_store_that_is_away_for_a_moment_is_waited_for(self, hv, mailbox, monkeypatch):
        add_rule(hv, "log", ["done"], ["x"])
        finish(hv, "a")
        failures = iter([away])
        intercept(monkeypatch, hv.store, notices.waiting, lambda really: next(failures, really)())
        Deliverer(hv).run()
        assert mailbox.said == ["done: a"]

    def test_a_store_that_fails_while_delivering_is_not_a_crash(self, hv, mailbox, monkeypatch):
        crashes: list[object] = []
        monkeypatch.setattr(threading, "excepthook", crashes.append)
        intercept(monkeypatch, hv.store, notices.sent, away)
        add_rule(hv, "log", ["done"], ["x"])
        finish(hv, "a")
        deliverer = Deliverer(hv)
        deliverer.tick(hv.now())
        deliverer._threads["log"].join(180)
        assert mailbox.said == ["done: a"] and crashes == []
        assert hv.store.notices_waiting()["log"][0] == 1, "it is delivered again"

    def test_delivers_and_has_no_more_to_do(self, hv, mailbox):
        add_rule(hv, "log", ["done"], ["x"])
        finish(hv, "a", "b")
        deliverer = Deliverer(hv)
        while deliverer.tick(hv.now()):
            for thread in deliverer._threads.values():
                thread.join(180)
        assert mailbox.said == ["done: a", "done: b"]
