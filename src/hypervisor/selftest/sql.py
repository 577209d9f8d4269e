"""Statements that inspect a store from outside."""

from __future__ import annotations

from typing import Any

from hypervisor.store import schema
from hypervisor.store.database import Session

Rows = list[tuple[Any, ...]]

SNAPSHOT = {
    "tasks": "SELECT id, state, attempt, open_deps, start_at, lane FROM tasks",
    "lanes": "SELECT id, keyed FROM lanes",
    "needs": "SELECT task, needs FROM dependencies",
    "keys": "SELECT task, key, lane, queued FROM task_keys",
    "holds": "SELECT key, lane, task FROM key_holds",
    "live": "SELECT task, number FROM attempts WHERE ended_at IS NULL",
    "events": "SELECT kind, task, attempt, state FROM events ORDER BY id",
    "ends": "SELECT task, number, outcome FROM attempts",
}
TASKS = "SELECT id FROM tasks"
ATTEMPTS = """
SELECT a.task, a.number, a.nonce, a.outcome, w.pid FROM attempts a
JOIN workers w ON w.id = a.worker ORDER BY a.task, a.number
"""
INTEGRITY = "PRAGMA integrity_check"  # SQLite
RECEIPTS = "SELECT hash FROM receipts"
COMPLETIONS = "SELECT task, count(*) FROM events WHERE kind = 'complete' GROUP BY task"
POISONINGS = "SELECT task, count(*) FROM events WHERE kind = 'poison' GROUP BY task"


def snapshot(session: Session) -> dict[str, Rows]:
    return {name: session.rows(sql) for name, sql in SNAPSHOT.items()}


def rows(session: Session, *statements: str) -> list[Rows]:
    return [session.rows(sql) for sql in statements]


def everything(session: Session) -> dict[str, Rows]:
    """Every row of every table, but for the numbers that PostgreSQL's events get when read."""
    events = ", ".join(name for name, _ in schema.COLUMNS["events"])
    columns = dict.fromkeys(schema.tables(), "*") | {"events": f"id, {events}"}
    return {
        table: sorted(session.rows(f"SELECT {columns[table]} FROM {table}"), key=repr)
        for table in columns
    }


def wipe(session: Session) -> None:
    """Empty a scratch store, for the next history."""
    for table in (*schema.tables(), "finding_words"):
        session.run(f"DELETE FROM {table}")
