"""The hot statements meet only what they serve: they use their partial index, never all tasks."""

from __future__ import annotations

import re

import pytest

from hypervisor.store import claiming, keys, readiness
from hypervisor.store.postgres import HEADS, SETTINGS, PostgresSession, numbered
from hypervisor.store.sqlite import HEAD
from tests.support.databases import Postgres, Sqlite

# statement, values, the indexes it has to use
HOT = {
    "READY_LANES": (claiming.READY_LANES, (), {"tasks_ready"}),
    "PICK": (claiming.PICK, (1, 1), {"tasks_ready"}),
    "HEAD": (HEAD, (1,), {"tasks_ready"}),
    "LIVE": (claiming.LIVE.format("?"), ("abcd",), {"tasks_leased"}),
    "HOLDERS": (claiming.HOLDERS, (1, "boot"), {"tasks_leased"}),
    "DUE": (readiness.DUE, (1, 1, 1), {"tasks_delayed"}),
    "ANY_DUE": (readiness.ANY_DUE, (1,), {"tasks_delayed"}),
    "BEST_IN_LANE": (keys.BEST_IN_LANE, ("k", 1), {"task_keys_queue"}),
    "NEXT_LANE": (keys.NEXT_LANE, ("k", 1), {"task_keys_queue"}),
}
TABLES = "tasks|task_keys|key_holds|attempts|workers|t|k|o|h|a|w"

FILL = [
    """INSERT INTO tasks (id, state, lane, rank, batch, created_at, updated_at, deadline)
    SELECT 'task' || n, CASE WHEN n % 4 = 0 THEN 'active' WHEN n % 100 = 1 THEN 'in_progress'
        WHEN n % 4 = 2 THEN 'done' ELSE 'waiting' END, n % 5 + 1, n, '', 1, 1,
        CASE WHEN n % 4 <> 0 AND n % 100 = 1 THEN n END
    FROM generate_series(1, 20000) AS n""",
    "INSERT INTO details (task, batch, title, body) SELECT id, '', 'title', '' FROM tasks",
]


@pytest.fixture
def sqlite(tmp_path):
    store = Sqlite(tmp_path / "store.db")
    yield store
    store.close()


@pytest.fixture
def postgres(postgres_url):
    store = Postgres(postgres_url)
    yield store
    store.close()


@pytest.mark.parametrize("name", HOT)
def test_sqlite_uses_the_partial_index_and_scans_no_table(sqlite, name):
    sql, values, indexes = HOT[name]
    plan = [row[3] for row in sqlite.query_with("EXPLAIN QUERY PLAN " + sql, values)]
    for index in indexes:
        assert any(f"INDEX {index} " in f"{line} " for line in plan), plan
    # Walking a partial index is fine, if it is the one that holds only what is looked for.
    scans = [
        line
        for line in plan
        if re.match(rf"SCAN ({TABLES})\b", line) and not any(f"INDEX {i}" in line for i in indexes)
    ]
    assert scans == [], plan


@pytest.mark.parametrize("name", ["READY_LANES", "PICK", "HEADS"])
@pytest.mark.parametrize("known", ["analysed", "never analysed"])
def test_postgres_uses_the_partial_index(postgres, name, known):
    """Whatever the statistics say: a queue's tables change faster than they do."""
    for statement in (*FILL, *(["ANALYZE"] if known == "analysed" else [])):
        postgres.run(statement)
    for setting in SETTINGS.split(";"):
        if "search_path" not in setting:
            postgres.run(setting)
    sql = {
        "READY_LANES": claiming.READY_LANES,
        "PICK": claiming.PICK + PostgresSession.skip_locked,
        "HEADS": HEADS,
    }[name]
    plan = postgres.query_with(f"EXPLAIN (GENERIC_PLAN) {numbered(sql).decode()}", ())
    lines = "\n".join(row[0] for row in plan)
    assert "using tasks_ready on tasks" in lines, lines
    assert "Seq Scan on tasks" not in lines, lines
    assert "Sort" not in lines, lines
