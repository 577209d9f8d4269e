"""Stores as the first version would have made them."""

from __future__ import annotations

import apsw
import psycopg

from hypervisor.store import schema
from hypervisor.store.dialect import POSTGRES_FRAGMENTS, SQLITE_FRAGMENTS
from hypervisor.store.postgres import VERSION_TABLE
from hypervisor.store.postgres_connection import SCHEMA
from tests.support.given import LEASE, NOW

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
    for statement in (*schema.statements(1, SQLITE_FRAGMENTS), *OLD_ROWS):
        connection.execute(statement)
    connection.pragma("application_id", schema.APPLICATION_ID)
    connection.pragma("user_version", 1)
    connection.close()


def sqlite_of_version(path, version):
    """A store of the first version, migrated to this one and no further."""
    old_sqlite(path)
    connection = apsw.Connection(str(path))
    for number in range(2, version + 1):
        for statement in schema.statements(number, SQLITE_FRAGMENTS):
            connection.execute(statement)
    connection.pragma("user_version", version)
    connection.close()


def old_postgres(url):
    postgres_of_version(url, 1)


def postgres_of_version(url, version):
    """The same on PostgreSQL."""
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        connection.execute(f"SET search_path TO {SCHEMA}")
        connection.execute(VERSION_TABLE)
        connection.execute(f"INSERT INTO schema_version VALUES ({version})")
        for statement in (*schema.statements(1, POSTGRES_FRAGMENTS), *OLD_ROWS):
            connection.execute(statement)
        for number in range(2, version + 1):
            for statement in schema.statements(number, POSTGRES_FRAGMENTS):
                connection.execute(statement)


def set_version(old, version):
    if old.kind == "sqlite":
        return old.run(f"PRAGMA user_version = {version}")
    return old.run(f"UPDATE schema_version SET version = {version}")
