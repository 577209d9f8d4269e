"""PostgreSQL: the fast path continues where the last call was, but only for a moment."""

from __future__ import annotations

import psycopg
import pytest

from hypervisor.queue.lease import AttemptResult, parse_token
from hypervisor.queue.sql.postgres_fast_path import HINT_LIFETIME
from hypervisor.queue.task import NewTask
from hypervisor.store.postgres import PostgresDatabase
from tests.queue.test_fast_path import NOW, add, claim, go_on, titles
from tests.support.ledger import Ledger

READ = "SELECT idx_blks_hit + idx_blks_read FROM pg_statio_user_indexes WHERE indexrelname = %s"


@pytest.fixture
def open_postgres(postgres_url):
    opened = []

    def opening():
        opened.append(Ledger(PostgresDatabase(postgres_url, relaxed=True)))
        return opened[-1]

    yield opening
    for ledger in opened:
        ledger.close()


@pytest.mark.parametrize(("lanes", "index"), [(1, "tasks_ready"), (50, "tasks_in_order")])
def test_a_turn_does_not_step_over_what_was_claimed(open_postgres, postgres_url, lanes, index):
    ledger = open_postgres()
    add(ledger, *[NewTask(str(n), type=f"type {n % lanes}") for n in range(2_000)])
    token = claim(ledger)
    ours = ledger._db._connection
    with psycopg.connect(postgres_url, autocommit=True) as looking:

        def pages(turns):
            nonlocal token
            before = read()
            for _ in range(turns):
                [lease] = go_on(ledger, token)[1]
                token = parse_token(lease.token)
            return (read() - before) / turns

        def read():
            ours.execute("SELECT pg_stat_force_next_flush()")
            [(count,)] = looking.execute(READ, (index,)).fetchall()
            return count

        early = pages(100)
        pages(1_500)
        assert pages(100) <= early + 1


def test_what_others_put_back_is_found_a_moment_later(open_postgres):
    ledger, other = open_postgres(), open_postgres()
    add(ledger, *"abcdefg")
    first, second = claim(other), claim(ledger)
    [lease] = go_on(ledger, second, NOW)[1]
    other.settle([AttemptResult(first, "release")], NOW)
    [lease] = go_on(ledger, parse_token(lease.token), NOW + HINT_LIFETIME - 1)[1]
    assert lease.task.title == "d"
    [lease] = go_on(ledger, parse_token(lease.token), NOW + HINT_LIFETIME)[1]
    assert lease.task.title == "a"


def test_what_it_puts_back_itself_is_found_at_once(open_postgres):
    ledger = open_postgres()
    add(ledger, *"abcd")
    first, second = claim(ledger), claim(ledger)
    [lease] = go_on(ledger, second)[1]
    ledger.settle([AttemptResult(first, "release")], NOW + 5)
    assert titles(go_on(ledger, parse_token(lease.token))[1]) == ["a"]


def test_what_is_put_back_last_is_not_overlooked(open_postgres):
    ledger, other = open_postgres(), open_postgres()
    add(ledger, *"abc")
    first, second = claim(other), claim(ledger)
    [lease] = go_on(ledger, second)[1]
    other.settle([AttemptResult(first, "release")], NOW + 5)
    assert titles(go_on(ledger, parse_token(lease.token))[1]) == ["a"]
