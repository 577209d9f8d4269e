"""Migrations while other processes use the store."""

from __future__ import annotations

import threading
import time

import apsw
import psycopg
import pytest

from hypervisor.core.errors import StoreNewer
from hypervisor.store import postgres, schema
from hypervisor.store.postgres import PostgresDatabase
from hypervisor.store.postgres_connection import SCHEMA
from hypervisor.store.sqlite import SqliteDatabase
from tests.store.old_stores import old_postgres
from tests.support.databases import Sqlite
from tests.support.ledger import Ledger


def test_the_first_process_migrates_and_the_others_find_it_done(old_place):
    kind, where = old_place
    go = threading.Barrier(4)
    seen: list[object] = []

    def come():
        go.wait(180)
        try:
            store = kind(where)
            seen.append(store.open().facts()["schema"])
            store.close()
        except BaseException as error:
            seen.append(error)

    threads = [threading.Thread(target=come) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert seen == [schema.VERSION] * 4


def test_a_newer_program_that_comes_first_is_not_undone(old_place, monkeypatch):
    kind, where = old_place
    overtaken: list[int] = []

    def then_somebody_newer(look):
        def looking(*place):
            found = look(*place)
            if not overtaken:
                overtaken.append(found)
                become(where, 999)
            return found

        return looking

    def become(where, version):
        if kind is Sqlite:
            connection = apsw.Connection(str(where))
            connection.pragma("user_version", version)
            return connection.close()
        with psycopg.connect(where, autocommit=True) as other:
            other.execute(f"UPDATE {SCHEMA}.schema_version SET version = {version}")

    if kind is Sqlite:
        look = SqliteDatabase._consistent
        monkeypatch.setattr(SqliteDatabase, "_consistent", then_somebody_newer(look))
    else:
        monkeypatch.setattr(postgres, "_version", then_somebody_newer(postgres._version))
    for _ in range(2):  # the second time it is seen at once
        with pytest.raises(StoreNewer, match="schema 999"):
            kind(where)
    assert overtaken == [1]


@pytest.fixture
def rival(postgres_url):
    """A transaction of an old worker that no deadlock ends: the other has to give way."""
    old_postgres(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"SET search_path TO {SCHEMA}; SET deadlock_timeout TO '1h'")
        yield connection


def in_the_way(where, rival, work, then):
    """The answer of `work`, which waits for the rival, which then does what waits for it."""
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    until = time.monotonic() + 180
    with psycopg.connect(where, autocommit=True) as looking:
        while not looking.execute(waiting).fetchall():
            assert time.monotonic() < until, "nobody came to wait"
    rival.execute(then)
    rival.commit()
    thread.join(180)
    return answers


def test_a_migration_that_loses_to_an_old_worker_is_tried_again(postgres_url, rival):
    rival.execute("INSERT INTO events (at, kind, task, batch, actor) VALUES (2, 'x', '', '', 'me')")

    def migrate():
        ledger = Ledger(PostgresDatabase(postgres_url))
        facts = ledger.facts()
        ledger.close()
        return facts["schema"], facts["integrity"]

    then = "UPDATE tasks SET updated_at = 2"
    assert in_the_way(postgres_url, rival, migrate, then) == [(schema.VERSION, "ok")]


def test_a_look_that_loses_is_taken_again(postgres_url, rival):
    database = PostgresDatabase(postgres_url)
    rival.execute("LOCK TABLE events")
    looks = ("SELECT count(*) FROM tasks", "SELECT count(*) FROM events")

    def look():
        return database.read(lambda s: [s.rows(sql)[0][0] for sql in looks])

    assert in_the_way(postgres_url, rival, look, "LOCK TABLE tasks") == [[4, 1]]
    database.close()


def test_a_migration_waits_for_transactions_that_know_the_old_schema(postgres_url, rival):
    rival.execute("SELECT version FROM schema_version")  # as every transaction that writes does

    def migrate():
        PostgresDatabase(postgres_url).close()
        return "migrated"

    then = "UPDATE tasks SET updated_at = 2"
    assert in_the_way(postgres_url, rival, migrate, then) == ["migrated"]
