"""A store of the first version opens, is brought up to date and goes on, on both databases."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

import apsw
import psycopg
import pytest

from hypervisor.batches.sql import pipelines
from hypervisor.batches.sql.pipelines import Pipeline
from hypervisor.core.errors import StoreNewer
from hypervisor.queue import lifecycle
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Usage, parse_token
from hypervisor.queue.task import NewTask
from hypervisor.runs.spec import Pause
from hypervisor.store import postgres, schema
from hypervisor.store.dialect import POSTGRES_WORDS, SQLITE_WORDS
from hypervisor.store.postgres import SCHEMA, VERSION_TABLE, PostgresDatabase
from hypervisor.store.sqlite import SqliteDatabase
from tests.queue import invariants
from tests.support.databases import DATABASES, Postgres, Sqlite
from tests.support.given import ANN, LEASE, NOW, claim_all
from tests.support.ledger import Ledger

# What the first version would have written: a batch, three lanes, a claim, a done task.
OLD_ROWS = [
    "INSERT INTO batches (id, name, created_at) VALUES ('b00000000001', 'old', 1)",
    "INSERT INTO lanes (id, batch, type, branch, priority, requires, assignee, keyed, number) "
    "VALUES (11, '', 'task', '', 'medium', '', '', 0, 1), "
    "(12, 'b00000000001', 'x', '', 'high', '', '', 0, 2), (13, '', 'y', '', 'low', '', '', 0, 3)",
    "INSERT INTO workers (id, name, host, boot, pid, pid_start, started_at, seen_at) "
    "VALUES ('w-ann', 'ann', 'here', 'boot1', 101, 1, 1, 1)",
    "INSERT INTO tasks (id, state, lane, rank, batch, attempt, deadline, created_at, updated_at) "
    f"VALUES ('000000000001', 'active', 11, 1, '', 0, NULL, 1, 1), "
    f"('000000000002', 'in_progress', 12, 2, 'b00000000001', 2, {NOW + LEASE}, 1, 1), "
    f"('000000000003', 'done', 13, 3, '', 1, NULL, 1, 1), "
    f"('000000000004', 'active', 12, 4, 'b00000000001', 0, NULL, 1, 1)",
    "INSERT INTO details (task, batch, title, body) VALUES ('000000000001', '', 'one', ''), "
    "('000000000002', 'b00000000001', 'two', ''), ('000000000003', '', 'three', ''), "
    "('000000000004', 'b00000000001', 'four', '')",
    "INSERT INTO attempts "
    "(task, number, nonce, worker, claimed_at, ended_at, outcome, state_after) VALUES "
    "('000000000002', 1, 'aaaa', 'w-ann', 1, 2, 'released', 'active'), "
    "('000000000002', 2, 'bbbb', 'w-ann', 3, NULL, NULL, NULL), "
    "('000000000003', 1, 'cccc', 'w-ann', 1, 2, 'done', 'done')",
    "INSERT INTO events (at, kind, task, batch, actor) VALUES (1, 'add', '000000000001', '', 'me')",
]


def old_sqlite(path):
    connection = apsw.Connection(str(path))
    for statement in (*schema.statements(1, SQLITE_WORDS), *OLD_ROWS):
        connection.execute(statement)
    connection.pragma("application_id", schema.APPLICATION_ID)
    connection.pragma("user_version", 1)
    connection.close()


def old_postgres(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        connection.execute(f"SET search_path TO {SCHEMA}")
        connection.execute(VERSION_TABLE)
        connection.execute("INSERT INTO schema_version VALUES (1)")
        for statement in (*schema.statements(1, POSTGRES_WORDS), *OLD_ROWS):
            connection.execute(statement)


@pytest.fixture(params=DATABASES)
def old_place(request, tmp_path):
    """Where a store of version 1 is that nothing has opened yet, and how to open one there."""
    if request.param == "sqlite":
        old_sqlite(tmp_path / "store.db")
        return Sqlite, tmp_path / "store.db"
    url = request.getfixturevalue("postgres_url")
    old_postgres(url)
    return Postgres, url


@pytest.fixture
def old(old_place):
    kind, where = old_place
    made = kind(where)
    yield made
    made.close()


@pytest.fixture
def fresh(request, old, tmp_path):
    """A new store on the same kind of database."""
    if old.kind == "sqlite":
        made: Sqlite | Postgres = Sqlite(tmp_path / "fresh.db")
    else:
        made = Postgres(request.getfixturevalue("postgres_server").new_database())
    yield made
    made.close()


def test_an_old_store_goes_on_as_if_nothing_had_happened(old):
    ledger = old.open()
    assert ledger.facts()["schema"] == schema.VERSION
    assert [ledger.task(f"00000000000{n}").state for n in (1, 2, 3, 4)] == [
        "active",
        "in_progress",
        "done",
        "active",
    ]
    assert ledger.batch("old").spec is None and ledger.pauses() == []
    token = parse_token("000000000002.2.bbbb")
    assert ledger.heartbeat([token], LEASE, NOW) == {token}
    [answer] = ledger.settle([AttemptResult(token, "complete", usage=Usage(0, 5, 6, 7))], NOW)
    assert answer.state == "done"
    assert [a[6:] for a in ledger.detail("000000000002").attempts] == [
        (None,) * 4,
        (0, 5, 6, 7),
    ]
    assert claim_all(ledger) == ["one", "four"]
    assert [event.kind for event in ledger.events(0, 9)] == ["add", "complete", "claim", "claim"]
    ledger.close()


def test_what_is_new_works_on_an_old_store(old):
    ledger = old.open()
    batch = ledger.declare("old", {"cwd": "/", "command": ["true"]}, "me", NOW)
    assert batch.id == "b00000000001"
    assert [(r.batch, r.types, r.tasks) for r in ledger.ready()] == [(batch.id, ("x",), 1)]
    ledger.pause(Pause("batch", batch.id, "", "me", NOW), NOW)
    invariants.check_lanes_of(old)
    assert ledger.ready() == [] and claim_all(ledger) == ["one"]
    ledger.resume(Pause("batch", batch.id, "", "me", NOW), NOW)
    ledger.register(ANN, batch.id, NOW)
    assert [each.worker for each in ledger.at_work("boot1")] == [ANN]
    assert ledger.ask_stop("000000000002", "release", "", "me", NOW)
    assert [stop.attempt for stop in ledger.stops(["000000000002"])] == [2]
    ledger.add([NewTask("new")], "old", "me", NOW)
    assert len(ledger.claim(ClaimRequest(ANN, 9, LEASE), NOW)) == 2
    assert ledger.report(batch.id, "", 9, NOW)[0].attempts == 2
    ledger.close()


# What version 13 kept of pipelines: of one with a reduce that is pending, of one that was submitted
# once more with another stage, and of one without a reduce.
OLD_PIPELINES = {
    "pattern a1": '[["a1", "a2"], "a3", "t1", true]',
    "pattern a2": '[["a1", "a2"], "a3", "t1", true]',
    "pattern a3": '[["a1", "a2"], "a3", "t1", true]',
    "untended a1": "f00d",
    "gathered t1": "abc",
    "pattern b1": '[["b1", "b3"], "", "", false]',
    "pattern b2": '[["b1", "b2"], "", "", false]',
    "pattern b3": '[["b1", "b3"], "", "", false]',
    "gathered t2": "",
    "pattern c1": '[["c1"], "c2", "t3"]',  # from before there was fail-fast
    "pattern c2": '[["c1"], "c2", "t3"]',
    "peak run": "not JSON",
}


def set_version(old, version):
    if old.kind == "sqlite":
        return old.run(f"PRAGMA user_version = {version}")
    return old.run(f"UPDATE schema_version SET version = {version}")


def test_pipelines_come_out_of_the_settings(old):
    ledger = old.open()
    ledger.keep_settings(OLD_PIPELINES)
    ledger.close()
    for table in ("pipelines", "pipeline_batches", "reduce_inputs"):
        old.run(f"DROP TABLE {table}")
    set_version(old, 13)
    ledger = old.open()
    read = ledger._db.read
    one, two = Pipeline(("a1", "a2"), "a3", "t1", True), Pipeline(("b1", "b3"))
    found = {batch: read(pipelines.of_batch, batch) for batch in ("a1", "a2", "a3", "b1", "b3")}
    assert found == {"a1": one, "a2": one, "a3": one, "b1": two, "b3": two}
    assert read(pipelines.of_batch, "b2") is None
    assert read(pipelines.of_batch, "c2") == Pipeline(("c1",), "c2", "t3")
    assert read(pipelines.pending) == ["a1"] and read(pipelines.pending_submission, "a1") == 1
    assert (ledger.reduce_input("t1"), ledger.reduce_input("t2")) == ("abc", "")
    assert ledger.setting("peak run") == "not JSON" and ledger.settings_like("pattern ") == {}
    assert ledger.settings_like("untended ") == ledger.settings_like("gathered ") == {}
    ledger.close()


def test_whoever_comes_first_migrates_and_the_others_find_it_done(old_place):
    kind, where = old_place
    go = threading.Barrier(4)
    seen: list[object] = []

    def come():
        go.wait(30)
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
        thread.join(60)
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
    until = time.monotonic() + 30
    with psycopg.connect(where, autocommit=True) as looking:
        while not looking.execute(waiting).fetchall():
            assert time.monotonic() < until, "nobody came to wait"
    rival.execute(then)
    rival.commit()
    thread.join(60)
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


def columns(store):
    if store.kind == "sqlite":
        [tables] = store.query("SELECT name FROM sqlite_schema WHERE type = 'table'")
        return {
            (table, *row[1:4], row[5])
            for (table,) in tables
            for row in store.query(f"PRAGMA table_info({table})")[0]
        }
    sql = (
        "SELECT table_name, column_name, data_type, is_nullable, collation_name "
        f"FROM information_schema.columns WHERE table_schema = '{SCHEMA}'"
    )
    return set(store.query(sql)[0])


def indexes(store):
    if store.kind == "sqlite":
        return set(store.query("SELECT name, sql FROM sqlite_schema WHERE type = 'index'")[0])
    sql = f"SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = '{SCHEMA}'"
    return set(store.query(sql)[0])


def test_a_migrated_store_is_like_a_fresh_one(old, fresh):
    assert columns(old) == columns(fresh)
    assert indexes(old) == indexes(fresh)


def test_sqlite_takes_every_state_there_is_and_no_other(tmp_path):
    old_sqlite(tmp_path / "store.db")
    store, other = Sqlite(tmp_path / "store.db"), apsw.Connection(str(tmp_path / "store.db"))
    other.execute("SELECT * FROM tasks").fetchall()  # knows the table as it was
    store.open().close()
    change = "UPDATE tasks SET state = ?, deadline = ?, reason = 'x' WHERE id = '000000000003'"
    for state in lifecycle.STATES:
        other.execute(change, (state, 1 if state == lifecycle.IN_PROGRESS else None))
    with pytest.raises(apsw.ConstraintError, match="state = 'in_progress' OR"):
        other.execute(change, ("odd", None))
    assert other.pragma("integrity_check") == "ok"
    other.close()
    store.close()


def test_a_store_of_a_later_version_is_refused(old):
    later = schema.VERSION + 1
    set_version(old, later)
    with pytest.raises(StoreNewer, match=f"schema {later}"):
        old.open()


def test_what_the_how_tos_show_is_the_latest_version():
    how_tos = Path(__file__).parents[2] / "docs" / "how-to"
    shown = {
        number
        for page in how_tos.glob("*.md")
        for number in re.findall(r"\(schema (\d+)\)", page.read_text())
    }
    assert shown == {str(schema.VERSION)}


def test_the_version_is_that_of_the_last_migration():
    assert len(schema.texts()) == schema.VERSION
    names = sorted(name for name in os.listdir(schema.FOLDER) if name.endswith(".sql"))
    assert [int(name[:4]) for name in names] == list(range(1, schema.VERSION + 1))
