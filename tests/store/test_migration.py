"""A store of the first version is migrated when it is opened, and works, on both databases."""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import hypervisor
from hypervisor.core.errors import StoreNewer
from hypervisor.queue import lifecycle
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Usage, parse_token
from hypervisor.queue.pause import Pause
from hypervisor.queue.sql import counts
from hypervisor.queue.task import NewTask
from hypervisor.store import schema
from hypervisor.store.postgres_connection import SCHEMA
from tests.queue import invariants
from tests.store.old_stores import old_sqlite, set_version, sqlite_of_version
from tests.support.databases import Sqlite
from tests.support.given import ANN, LEASE, NOW, claim_all


def test_an_old_store_continues_as_if_nothing_had_happened(old):
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
    assert ledger.read(counts.corrections) == []
    assert claim_all(ledger) == ["one", "four"]
    assert ledger.read(counts.corrections) == []
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


@pytest.mark.parametrize("version", range(1, schema.VERSION + 1))
def test_a_store_of_every_version_opens_and_works(tmp_path, version):
    path = tmp_path / "store.db"
    sqlite_of_version(path, version)
    with closing(hypervisor.open(path)) as hv:
        assert hv.store.facts()["schema"] == schema.VERSION
        assert hv.store.facts()["integrity"] == "ok"
        before = {task.title for task in hv.list_tasks()}
        hv.add(["new"], batch="fresh")
        (lease,) = hv.claim("w", batch="fresh")
        hv.complete(lease.token, {"done": True})
        assert before == {"one", "two", "three", "four"}
        assert {task.title for task in hv.list_tasks(states=("done",))} == {"three", "new"}


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
