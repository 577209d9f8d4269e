"""The tables, as numbered, append-only migrations for both databases.

Each is a file in `migrations/`, in a portable subset of SQL with fragments from `dialect.py`. Hot
rows stay small: text and JSON are in `details`. Partial indexes hold only the rows they serve, so
that a claim never reads a task that is not claimable. CHECK and unique constraints repeat the
invariants of the lifecycle; for the hot tables on PostgreSQL, `postgres_checks.py` does.
"""

from __future__ import annotations

import os

APPLICATION_ID = 0x48565231  # "HVR1", marks an SQLite file as ours
VERSION = 27  # the last migration; opening a store of this version reads none of the files
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "migrations")

# Columns, with their types, of the tables into which whole rows are inserted.
_ROWS = {
    "tasks": "id text, state text, lane bigint, rank bigint, batch text, open_deps bigint, "
    "start_at bigint, retries bigint, created_at bigint, updated_at bigint, chunk bigint, "
    "held bigint",
    "details": "task text, batch text, key text, key_hash text, title text, body text, data text",
    "attempts": "task text, number bigint, nonce text, worker text, claimed_at bigint",
    "events": "at bigint, kind text, task text, batch text, attempt bigint, state text, "
    "actor text, data text",
    "dependencies": "task text, needs text",
    "task_keys": "task text, key text, lane bigint, rank bigint, queued bigint",
    "key_holds": "key text, lane bigint, task text",
    "count_changes": "batch text, type text, state text, tasks bigint",
    "receipts": "chain text, number bigint, task text, attempt bigint, at bigint, "
    "actor text, text text, hash text",
}
COLUMNS = {
    table: [
        (name, kind) for name, _, kind in (column.partition(" ") for column in text.split(", "))
    ]
    for table, text in _ROWS.items()
}
INTO = {
    table: f"INSERT INTO {table} ({', '.join(name for name, _ in columns)})"
    for table, columns in COLUMNS.items()
}


def texts() -> list[str]:
    """The migrations in their order, without comments."""
    return [_text(name) for name in _files()]


def statements(number: int, fragments: dict[str, str]) -> list[str]:
    """The statements of migration `number` (1 is the first) with one database's fragments."""
    text = _text(_files()[number - 1]).format(**fragments)
    return [part.strip() for part in text.split(";") if part.strip()]


def _files() -> list[str]:
    return sorted(name for name in os.listdir(FOLDER) if name.endswith(".sql"))


def _text(name: str) -> str:
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return "".join(line for line in file if not line.startswith("--"))


def tables() -> list[str]:
    """The names of all tables that both databases have."""
    import re

    return re.findall(r"^CREATE TABLE (\w+)", "".join(texts()), re.MULTILINE)
