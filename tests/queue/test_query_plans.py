"""The hot statements use their partial index and never scan all tasks."""

from __future__ import annotations

import re

import pytest

from hypervisor.batches.sql import summary
from hypervisor.hive.sql import findings, search
from hypervisor.queue.sql import (
    agent_claims,
    agent_sessions,
    claims,
    exclusive_keys,
    fast_path,
    lanes,
    picking,
    readiness,
)
from hypervisor.queue.sql import stops as stops_sql
from hypervisor.runs import sql as running
from hypervisor.store.dialect import POSTGRES_HEADS, POSTGRES_MATCHING, SQLITE_HEAD
from hypervisor.store.postgres_connection import SETTINGS
from hypervisor.store.postgres_session import PostgresSession, numbered
from tests.support.databases import Postgres, Sqlite


def of(statement, *names):
    """A statement about sessions of a batch, a task, …"""
    return statement.format(" AND ".join(agent_sessions.OF[name] for name in names))


# statement, values, the indexes it has to use
HOT = {
    "READY_LANES": (picking.READY_LANES, (), {"tasks_ready"}),
    "PICK": (picking.PICK, (1, 1), {"tasks_ready"}),
    "PICK_ANY": (picking.PICK_ANY, (1,), {"tasks_in_order"}),
    "FIRST": (picking.FIRST, (1,), {"tasks_in_order"}),
    "PICK_AMONG": (picking.PICK_AMONG.format("?,?"), ("a", "b", 1), set()),
    "HEAD": (SQLITE_HEAD, (1,), {"tasks_ready"}),
    "LIVE": (claims.LIVE.format("?"), ("abcd",), {"tasks_leased"}),
    "HOLDERS": (claims.HOLDERS, (1, "boot"), {"tasks_leased"}),
    "DUE": (readiness.DUE, (1, 1, 1), {"tasks_delayed"}),
    "ANY_DUE": (readiness.ANY_DUE, (1,), {"tasks_delayed"}),
    "BEST_IN_LANE": (exclusive_keys.BEST_IN_LANE, ("k", 1), {"task_keys_queue"}),
    "NEXT_LANE": (exclusive_keys.NEXT_LANE, ("k", 1), {"task_keys_queue"}),
    "STOPS": (stops_sql.STOPS.format("?,?"), ("a", "b"), set()),
    "RUN_ATTEMPT": (stops_sql.RUN_ATTEMPT, ("a",), set()),
    "AT_WORK": (running.AT_WORK, ("boot",), {"workers_at_work"}),
    "RUNNING": (running.RUNNING, ("", "", 9), {"tasks_leased"}),
    "FEW_READY": (running.FEW_READY, (1,), {"tasks_ready"}),
    "RUN_BATCHES": (running.RUN_BATCHES.format("?,?"), ("a", "b"), set()),
    "STATES": (running.STATES.format("?,?"), ("a", "b"), set()),
    "REPORT": (running.REPORT, (1, "b", "", 9), {"tasks_of_batch"}),
    "SUMMED TASKS": (summary.TASKS, ("b",), {"tasks_of_batch"}),
    "SUMMED ATTEMPTS": (summary.ATTEMPTS, (1, 1, "b"), {"tasks_of_batch"}),
    "RESULTS": (summary.RESULTS, ("b", "", 9), {"tasks_of_batch"}),
    "ANY_RUNNING": (running.ANY_RUNNING, ("b",), {"tasks_leased"}),
    "SINCE": (running.SINCE, ("b", 1), {"tasks_of_batch"}),
    "AGENT_CLAIMS": (agent_claims.LIVE, ("w",), set()),
    "ENDED": (claims.ENDED, ("a", 1), set()),
    "SESSIONS": (of(agent_sessions.SESSIONS, "task"), ("t", 9), {"sessions_of_task"}),
    "SESSIONS batch": (of(agent_sessions.SESSIONS, "batch"), ("b", 9), {"sessions_of_batch"}),
    "SESSIONS worker": (of(agent_sessions.SESSIONS, "worker"), ("w", 9), {"sessions_of_worker"}),
    "FIGURES": (running.FIGURES.format("?,?"), ("a", "b"), {"sessions_of_task"}),
    "ANY_OF_BATCH": (running.ANY_OF_BATCH, ("b",), {"sessions_of_batch"}),
    "STILL_NEEDED": (agent_sessions.STILL_NEEDED, ("b",), {"tasks_of_batch"}),
    "SPENT batch": (of(agent_sessions.SPENT, "batch"), ("b",), {"sessions_of_batch"}),
    "SPENT task": (of(agent_sessions.SPENT, "task"), ("t",), {"sessions_of_task"}),
    "SPENT since": (of(agent_sessions.SPENT, "since"), (1,), {"sessions_by_time"}),
    "FINDINGS": (search.BY_ID.format("?,?"), ("a", "b"), set()),
    "NEWEST": (search.NEWEST, (9,), {"sqlite_autoindex_findings_1"}),
    "JOINED": (search.JOINED, ("a", "a"), {"findings_joined"}),
    "SAID": (search.WORDINGS.format("?,?"), ("a", "b"), {"findings_joined"}),
    "WORDINGS": (findings.WORDINGS, ("a", "a"), {"findings_joined"}),
    "OF_TASK": (search.OF_TASK, ("t",), {"findings_of_task"}),
    "DOUBTS": (search.DOUBTS.format("?,?"), ("a", "b"), set()),
    "COUNTS": (search.COUNTS.format("?,?"), ("a", "b"), {"findings_of_branch"}),
    "BEST": (search.BEST, ("b", 0, 9), {"findings_known"}),
    "COUNT": (findings.COUNT, ("a",) * 4, {"findings_joined"}),
    "NEWER": (lanes.NEWER, (1,), {"sqlite_autoindex_lanes_1"}),
}
TABLES = (
    "tasks|task_keys|key_holds|attempts|workers|stops|batches|details|lanes|sessions|findings|"
    "doubts|[tkohawsdf]"
)
# On PostgreSQL: the statement, what its plan has to say, what it must not do
CLAIMING = ({"using tasks_ready on tasks"}, {"Seq Scan", "Sort"})
IN_ORDER = ({"using tasks_in_order on tasks"}, {"Seq Scan", "Sort"})
FIRST_OF_ALL = fast_path.FIRST_OF_ALL.replace("INTO best, low ", "").replace("low", "?")
BY_BATCH = ({"using tasks_of_batch on tasks", "using attempts_pkey on attempts"}, {"Seq Scan"})
HOT_ON_POSTGRES = {
    "READY_LANES": (picking.READY_LANES, *CLAIMING),
    "PICK": (picking.PICK + PostgresSession.skip_locked, *CLAIMING),
    "PICK_ANY": (picking.PICK_ANY + PostgresSession.skip_locked, *IN_ORDER),
    "FIRST": (picking.FIRST, *IN_ORDER),
    "FIRST_OF_ALL": (FIRST_OF_ALL, *IN_ORDER),
    "PICK_AMONG": (
        picking.PICK_AMONG.format("?,?") + PostgresSession.skip_locked,
        {"using tasks_pkey on tasks"},
        {"Seq Scan", "tasks_ready", "tasks_in_order"},
    ),
    "HEADS": (POSTGRES_HEADS, *CLAIMING),
    "FEW_READY": (running.FEW_READY, *CLAIMING),
    "STOPS": (
        stops_sql.STOPS.format("?,?"),
        {"using stops_pkey on stops", "using tasks_pkey on tasks"},
        {"Seq Scan", "Sort"},
    ),
    "AT_WORK": (running.AT_WORK, {"using workers_at_work on workers"}, {"Seq Scan", "Sort"}),
    "RUNNING": (running.RUNNING, {"using tasks_leased on tasks"}, {"Seq Scan"}),
    "REPORT": (running.REPORT, *BY_BATCH),
    "SUMMED TASKS": (summary.TASKS, {"using tasks_of_batch on tasks"}, {"Seq Scan"}),
    "SUMMED ATTEMPTS": (summary.ATTEMPTS, *BY_BATCH),
    "RESULTS": (summary.RESULTS, {"using tasks_of_batch on tasks"}, {"Seq Scan"}),
    "ANY_RUNNING": (running.ANY_RUNNING, {"using tasks_leased on tasks"}, {"Seq Scan"}),
    "SINCE": (running.SINCE, {"using tasks_of_batch on tasks"}, {"Seq Scan"}),
    "AGENT_CLAIMS": (agent_claims.LIVE, {"using agent_claims_pkey"}, {"Seq Scan", "tasks_leased"}),
    "SESSIONS": (of(agent_sessions.SESSIONS, "task"), {"sessions_of_task"}, {"Seq Scan", "Sort"}),
    "FIGURES": (running.FIGURES.format("?,?"), {"sessions_of_task"}, {"Seq Scan"}),
    "STILL_NEEDED": (agent_sessions.STILL_NEEDED, *BY_BATCH),
    "SPENT batch": (of(agent_sessions.SPENT, "batch"), {"sessions_of_batch"}, {"Seq Scan"}),
    "SPENT task": (of(agent_sessions.SPENT, "task"), {"sessions_of_task"}, {"Seq Scan"}),
    "SPENT since": (of(agent_sessions.SPENT, "since"), {"sessions_by_time"}, {"Seq Scan"}),
    "BEST": (search.BEST, {"findings_known"}, {"Seq Scan", "Sort"}),
    "OF_TASK": (search.OF_TASK, {"findings_of_task"}, {"Seq Scan"}),
    "DOUBTS": (search.DOUBTS.format("?,?"), {"doubts_pkey"}, {"Seq Scan"}),
    "MATCHING": (POSTGRES_MATCHING, {"finding_words_found"}, {"Seq Scan"}),
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
    """INSERT INTO sessions
        (id, agent, account, batch, worker, task, attempt, resumes, started_at)
    SELECT id, 'claude', '', batch, 'w', id, 1, '', rank FROM tasks""",
    """INSERT INTO findings
        (id, branch, topic, kind, text, task, attempt, agent, actor, at, joins, source, sources)
    SELECT id, 'b' || (rank % 50), '', 'finding', 'text', id, 1, '', 'me', 1, '', id, rank % 3 + 1
    FROM tasks""",
    """INSERT INTO finding_words (number, words)
    SELECT rank, array_to_tsvector(ARRAY['w' || (rank % 100), 'b:1']) FROM tasks""",
    "INSERT INTO doubts (finding, other, why) SELECT id, 'x', '' FROM tasks",
    "INSERT INTO details (task, batch, title, body) SELECT id, '', 'title', '' FROM tasks",
]


@pytest.fixture
def sqlite(tmp_path):
    store = Sqlite(tmp_path / "store.db")
    yield store
    store.close()


@pytest.fixture(scope="module", params=["analysed", "never analysed"])
def filled(postgres_server, request):
    """A PostgreSQL store with much in it."""
    url = postgres_server.new_database()
    store = Postgres(url)
    for statement in (*FILL, *(["ANALYZE"] if request.param == "analysed" else [])):
        store.run(statement)
    yield store
    store.close()
    postgres_server.drop_database(url)


@pytest.mark.parametrize("name", HOT)
def test_sqlite_uses_the_partial_index_and_scans_no_table(sqlite, name):
    sql, values, indexes = HOT[name]
    plan = [row[3] for row in sqlite.query_with("EXPLAIN QUERY PLAN " + sql, values)]
    for index in indexes:
        assert any(f"INDEX {index} " in f"{line} " for line in plan), plan
    # Scanning a partial index is fine if it holds only the wanted rows.
    scans = [
        line
        for line in plan
        if re.match(rf"SCAN ({TABLES})\b", line) and not any(f"INDEX {i}" in line for i in indexes)
    ]
    assert scans == [], plan


@pytest.mark.parametrize("count", [1, 3])
def test_a_plain_turn_on_sqlite_goes_by_index(sqlite, count):
    for statement in fast_path.SQLITE_PROGRAM:
        sqlite.run(statement)
    sql = fast_path.sqlite_statement(count)
    values = [None] * sql.count("?")
    plan = [row[3] for row in sqlite.query_with("EXPLAIN QUERY PLAN " + sql, values)]
    assert sum("INDEX tasks_ready (lane=?)" in line for line in plan) == count, plan
    assert [line for line in plan if re.match(rf"SCAN ({TABLES}|e|l|d)\b", line)] == [], plan


def test_a_plain_turn_from_any_lane_goes_by_rank(sqlite):
    for statement in fast_path.SQLITE_PROGRAM:
        sqlite.run(statement)
    sql = fast_path.sqlite_statement(0)
    plan = [
        row[3] for row in sqlite.query_with("EXPLAIN QUERY PLAN " + sql, [None] * sql.count("?"))
    ]
    assert any("INDEX tasks_in_order" in line for line in plan), plan
    assert "USE TEMP B-TREE FOR ORDER BY" not in plan


@pytest.mark.parametrize("name", HOT_ON_POSTGRES)
def test_postgres_uses_the_partial_index(filled, name):
    """Whatever the statistics say: a queue's tables change faster than they do."""
    for setting in (f"SET {name} TO {value}" for name, value in SETTINGS.items()):
        if "search_path" not in setting:
            filled.run(setting)
    if name == "MATCHING":
        filled.run("SET enable_bitmapscan TO on")  # as the session does before it
    sql, said, unwanted = HOT_ON_POSTGRES[name]
    plan = filled.query_with(f"EXPLAIN (GENERIC_PLAN) {numbered(sql).decode()}", ())
    lines = "\n".join(row[0] for row in plan)
    assert {words for words in said if words not in lines} == set(), lines
    assert {words for words in unwanted if words in lines} == set(), lines
