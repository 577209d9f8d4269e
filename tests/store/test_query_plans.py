"""The hot statements meet only what they serve: they use their partial index, never all tasks."""

from __future__ import annotations

import re

import pytest

from hypervisor.store import claiming, keys, lanes, readiness, running, turn
from hypervisor.store.dialect import POSTGRES_HEADS, SQLITE_HEAD
from hypervisor.store.postgres import SETTINGS, PostgresSession, numbered
from tests.support.databases import Postgres, Sqlite

# statement, values, the indexes it has to use
HOT = {
    "READY_LANES": (claiming.READY_LANES, (), {"tasks_ready"}),
    "PICK": (claiming.PICK, (1, 1), {"tasks_ready"}),
    "HEAD": (SQLITE_HEAD, (1,), {"tasks_ready"}),
    "LIVE": (claiming.LIVE.format("?"), ("abcd",), {"tasks_leased"}),
    "HOLDERS": (claiming.HOLDERS, (1, "boot"), {"tasks_leased"}),
    "DUE": (readiness.DUE, (1, 1, 1), {"tasks_delayed"}),
    "ANY_DUE": (readiness.ANY_DUE, (1,), {"tasks_delayed"}),
    "BEST_IN_LANE": (keys.BEST_IN_LANE, ("k", 1), {"task_keys_queue"}),
    "NEXT_LANE": (keys.NEXT_LANE, ("k", 1), {"task_keys_queue"}),
    "STOPS": (running.STOPS.format("?,?"), ("a", "b"), set()),
    "RUN_ATTEMPT": (running.RUN_ATTEMPT, ("a",), set()),
    "AT_WORK": (running.AT_WORK, ("boot",), {"workers_at_work"}),
    "RUNNING": (running.RUNNING, ("", "", 9), {"tasks_leased"}),
    "FEW_READY": (running.FEW_READY, (1,), {"tasks_ready"}),
    "RUN_BATCHES": (running.RUN_BATCHES.format("?,?"), ("a", "b"), set()),
    "STATES": (running.STATES.format("?,?"), ("a", "b"), set()),
    "REPORT": (running.REPORT, (1, "b", "", 9), {"tasks_of_batch"}),
    "SPAN": (running.SPAN, (1, "b"), {"tasks_of_batch"}),
    "SINCE": (running.SINCE, ("b", 1), {"tasks_of_batch"}),
    "NEWER": (lanes.NEWER, (1,), {"sqlite_autoindex_lanes_1"}),
}
TABLES = "tasks|task_keys|key_holds|attempts|workers|stops|batches|details|lanes|[tkohawsd]"
# On PostgreSQL: the statement, what its plan has to say, what it must not do
CLAIMING = ({"using tasks_ready on tasks"}, {"Seq Scan", "Sort"})
BY_BATCH = ({"using tasks_of_batch on tasks", "using attempts_pkey on attempts"}, {"Seq Scan"})
HOT_ON_POSTGRES = {
    "READY_LANES": (claiming.READY_LANES, *CLAIMING),
    "PICK": (claiming.PICK + PostgresSession.skip_locked, *CLAIMING),
    "HEADS": (POSTGRES_HEADS, *CLAIMING),
    "FEW_READY": (running.FEW_READY, *CLAIMING),
    "STOPS": (
        running.STOPS.format("?,?"),
        {"using stops_pkey on stops", "using tasks_pkey on tasks"},
        {"Seq Scan", "Sort"},
    ),
    "AT_WORK": (running.AT_WORK, {"using workers_at_work on workers"}, {"Seq Scan", "Sort"}),
    "RUNNING": (running.RUNNING, {"using tasks_leased on tasks"}, {"Seq Scan"}),
    "REPORT": (running.REPORT, *BY_BATCH),
    "SPAN": (running.SPAN, *BY_BATCH),
    "SINCE": (running.SINCE, {"using tasks_of_batch on tasks"}, {"Seq Scan"}),
}

FILL = [
    """INSERT INTO tasks (id, state, lane, rank, batch, created_at, updated_at, deadline)
    SELECT 'task' || n, CASE WHEN n % 4 = 0 THEN 'active' WHEN n % 100 = 1 THEN 'in_progress'
        WHEN n % 4 = 2 THEN 'done' ELSE 'waiting' END, n % 5 + 1, n, '', 1, 1,
        CASE WHEN n % 4 <> 0 AND n % 100 = 1 THEN n END
    FROM generate_series(1, 20000) AS n""",
    "UPDATE tasks SET batch = 'batch' || (rank % 50)",
    """INSERT INTO attempts (task, number, nonce, worker, claimed_at)
    SELECT id, 1, 'abcd', 'w' || (rank % 10), 1 FROM tasks
    WHERE state IN ('in_progress', 'done')""",
    """INSERT INTO workers
        (id, name, host, boot, pid, pid_start, started_at, seen_at, batch, ended_at)
    SELECT 'w' || n, 'w', 'h', 'boot' || n % 3, n, 1, 1, 1, 'b', CASE WHEN n > 9 THEN 1 END
    FROM generate_series(1, 2000) AS n""",
    """INSERT INTO stops (task, attempt, next, reason, actor, at)
    SELECT id, 1, 'fail', '', '', 1 FROM tasks WHERE state = 'done'""",
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


@pytest.mark.parametrize("count", [1, 3])
def test_a_plain_turn_on_sqlite_goes_by_index(sqlite, count):
    for statement in turn.SQLITE_PROGRAM:
        sqlite.run(statement)
    sql = turn.sqlite_turn(count)
    values = [None] * sql.count("?")
    plan = [row[3] for row in sqlite.query_with("EXPLAIN QUERY PLAN " + sql, values)]
    assert sum("INDEX tasks_ready (lane=?)" in line for line in plan) == count, plan
    assert [line for line in plan if re.match(rf"SCAN ({TABLES}|e|l|d)\b", line)] == [], plan


@pytest.mark.parametrize("name", HOT_ON_POSTGRES)
@pytest.mark.parametrize("known", ["analysed", "never analysed"])
def test_postgres_uses_the_partial_index(postgres, name, known):
    """Whatever the statistics say: a queue's tables change faster than they do."""
    for statement in (*FILL, *(["ANALYZE"] if known == "analysed" else [])):
        postgres.run(statement)
    for setting in SETTINGS.split(";"):
        if "search_path" not in setting:
            postgres.run(setting)
    sql, said, unwanted = HOT_ON_POSTGRES[name]
    plan = postgres.query_with(f"EXPLAIN (GENERIC_PLAN) {numbered(sql).decode()}", ())
    lines = "\n".join(row[0] for row in plan)
    assert {words for words in said if words not in lines} == set(), lines
    assert {words for words in unwanted if words in lines} == set(), lines
