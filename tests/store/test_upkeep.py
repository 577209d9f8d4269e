"""The log of an SQLite store is emptied while work continues, and PostgreSQL's rows are checked."""

from __future__ import annotations

import os

import apsw
import pytest

from hypervisor.queue.lease import AttemptResult, ClaimRequest, Worker, parse_token
from hypervisor.queue.task import NewTask
from hypervisor.store.postgres_checks import CHECKS
from tests.support.databases import Postgres, Sqlite

NOW = 1_800_000_000_000
LIMIT = 20
PAGE = 4096 + 24  # with its header in the log
WORKERS = [Worker(f"w{n}", f"w{n}", "here", "boot1", 100 + n, 1) for n in (1, 2)]


@pytest.fixture
def sqlite(tmp_path):
    store = Sqlite(tmp_path / "store.db")
    yield store
    store.close()


@pytest.fixture
def pair(sqlite):
    """Two ledgers on one file that empty its log early."""
    ledgers = [sqlite.open(), sqlite.open()]
    for ledger in ledgers:
        ledger._db._log_limit = LIMIT
    yield ledgers
    for ledger in ledgers:
        ledger.close()


def take_turns(ledgers, count):
    ledgers[0].add([NewTask(str(n)) for n in range(count)], None, "me", NOW)
    for ledger, worker in zip(ledgers, WORKERS, strict=True):
        request = ClaimRequest(worker, 1, 60_000)
        leases = ledger.claim(request, NOW)
        for _ in range(count // 2):
            verdicts = [AttemptResult(parse_token(lease.token), "complete") for lease in leases]
            leases = ledger.settle_and_claim(verdicts, request, NOW)[1] or leases


def log_pages(ledger):
    return os.path.getsize(ledger.where + "-wal") // PAGE


def test_the_log_starts_over_again_and_again(pair):
    take_turns(pair, 20)
    before = log_pages(pair[0])
    take_turns(pair, 400)
    # It exceeds the limit by at most one change, however much was written.
    assert log_pages(pair[0]) <= before + 3 * LIMIT


def test_a_reader_keeps_the_log_from_starting_over_and_nothing_fails(pair):
    reader = apsw.Connection(pair[0].where)
    reader.execute("BEGIN; SELECT count(*) FROM tasks").fetchall()
    take_turns(pair, 200)
    long = log_pages(pair[0])
    assert long > 3 * LIMIT
    reader.execute("COMMIT")
    reader.close()
    take_turns(pair, 200)
    assert log_pages(pair[0]) <= long + 3 * LIMIT
    assert pair[1].stats(None, NOW).states["done"] > 390


@pytest.fixture
def postgres(postgres_url):
    store = Postgres(postgres_url)
    yield store
    store.close()


BROKEN = {
    "tasks": {
        "state = 'asleep'",
        "attempt = -1",
        "open_deps = -1",
        "deadline = 5",
        "state = 'blocked'",
        "start_at = 5",
    },
    "attempts": {"number = 0", "outcome = 'done'"},
}


@pytest.mark.parametrize(
    ("table", "change"), [(table, change) for table in BROKEN for change in sorted(BROKEN[table])]
)
def test_postgres_finds_rows_that_contradict_themselves(postgres, table, change):
    ledger = postgres.open()
    ledger.add([NewTask("a"), NewTask("b")], None, "me", NOW)
    ledger.claim(ClaimRequest(WORKERS[0], 1, 60_000), NOW)
    assert ledger.facts()["integrity"] == "ok"
    where = "WHERE state = 'active'" if table == "tasks" else ""
    postgres.run(f"UPDATE {table} SET {change} {where}")
    assert ledger.facts()["integrity"].startswith(f"1 row of {table} violating ")
    ledger.close()


def test_every_check_that_postgres_leaves_out_is_one_of_sqlite(sqlite):
    sqlite.open().close()
    for table, checks in CHECKS.items():
        [[(text,)]] = sqlite.query(f"SELECT sql FROM sqlite_schema WHERE name = '{table}'")
        kept = " ".join(text.split())
        assert [check for check in checks if f"CHECK ({check})" not in kept] == []


def test_postgres_checks_nothing_else_at_each_write(postgres):
    postgres.open().close()
    sql = "SELECT conrelid::regclass::text FROM pg_constraint WHERE contype = 'c'"
    [rows] = postgres.query(sql)
    assert rows and {name.rpartition(".")[2] for (name,) in rows}.isdisjoint(CHECKS)
