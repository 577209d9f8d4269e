"""The time of an SQLite store when the wall clock is set: durations stay the same."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import StoreFull
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Worker, parse_token
from hypervisor.queue.task import NewTask
from hypervisor.store.clock import REREAD_AFTER
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.given import ANN, LEASE, NOW, SECOND
from tests.support.ledger import Ledger

HOUR = 3600 * SECOND
WEB = Worker("w-web", "web", "here")  # names no process


class FakeClocks:
    """Both clocks of a host, moved by the test."""

    def __init__(self):
        self.now_steady, self.offset, self.name = 5_000 * SECOND, NOW - 5_000 * SECOND, "boot-1"

    def wall(self):
        return self.now_steady + self.offset

    def steady(self):
        return self.now_steady

    def boot(self):
        return self.name, "time:[1]"

    def pass_by(self, milliseconds):
        self.now_steady += milliseconds

    def set_wall(self, by):
        self.offset += by

    def restart(self):
        self.offset, self.now_steady, self.name = self.wall(), 0, "boot-2"


@pytest.fixture
def clocks():
    return FakeClocks()


@pytest.fixture
def opened(tmp_path, clocks):
    """Opens the store as another process."""
    made = []

    def open_store():
        made.append(Ledger(SqliteDatabase(str(tmp_path / "x.db"), relaxed=True, clocks=clocks)))
        return made[-1]

    yield open_store
    for each in made:
        each.close()


@pytest.fixture
def ledger(opened):
    return opened()


def claim(ledger, worker=ANN):
    (lease,) = ledger.claim(ClaimRequest(worker, 1, LEASE))
    return parse_token(lease.token)


SET = pytest.mark.parametrize("by", [-HOUR, HOUR, -90 * 24 * HOUR])


@SET
def test_a_retry_stays_due_when_it_was(ledger, opened, clocks, by):
    ledger.add([NewTask("x", retries=1)], None, "ann")
    due = ledger.now() + 10 * SECOND
    ledger.settle([AttemptResult(claim(ledger), "back_off", reason="again", retry_at=due)])
    clocks.set_wall(by)
    other = opened()
    clocks.pass_by(10 * SECOND - 1)
    assert ledger.now() == other.now() == opened().now() == due - 1
    assert not other.due(other.now())
    clocks.pass_by(1)
    assert other.due(other.now()) and ledger.promote_due(ledger.now()) == 1


@SET
def test_a_claim_without_a_process_lapses_when_its_lease_ends(ledger, opened, clocks, by):
    ledger.add([NewTask("x")], None, "ann")
    claim(ledger, WEB)
    clocks.set_wall(by)
    other = opened()
    clocks.pass_by(LEASE)
    assert other.holders("boot1") == [] and ledger.holders("boot1") == []
    clocks.pass_by(1)
    assert len(other.holders("boot1")) == 1


@SET
def test_it_follows_the_wall_clock_once_nothing_depends_on_it(ledger, opened, clocks, by):
    ledger.add([NewTask("x")], None, "ann")
    token = claim(ledger, WEB)
    clocks.set_wall(by)
    other = opened()
    assert other.now() == clocks.wall() - by
    other.settle([AttemptResult(token, "complete")])
    clocks.pass_by(REREAD_AFTER + 1)
    assert other.now() == clocks.wall() == ledger.now() == opened().now()


def test_processes_do_not_keep_it_from_following(ledger, clocks):
    """Their claims end with them, whatever the time."""
    ledger.add([NewTask("x")], None, "ann")
    claim(ledger, ANN)
    clocks.set_wall(-HOUR)
    clocks.pass_by(REREAD_AFTER + 1)
    assert ledger.now() == clocks.wall()


def test_another_boot_begins_with_the_wall_clock(ledger, opened, clocks):
    ledger.add([NewTask("x")], None, "ann")
    claim(ledger, WEB)
    clocks.restart()
    clocks.set_wall(-HOUR)
    assert opened().now() == clocks.wall()


def test_small_differences_are_not_followed(ledger, clocks):
    before = ledger.now()
    clocks.set_wall(-900)
    clocks.pass_by(REREAD_AFTER + 1)
    assert ledger.now() == before + REREAD_AFTER + 1


def test_a_store_that_cannot_be_written_has_the_time_of_the_wall_clock(
    tmp_path, clocks, monkeypatch
):
    def full(work, durable=True):
        raise StoreFull("no space left")

    database = SqliteDatabase(str(tmp_path / "x.db"), relaxed=True, clocks=clocks)
    monkeypatch.setattr(database, "write", full)
    assert database.now() == clocks.wall()
    database.close()
