"""One transaction on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import psycopg

from hypervisor.store import schema
from hypervisor.store.database import ProcessCaches, Row, Statement
from hypervisor.store.dialect import (
    NUMBER_EVENTS,
    POSTGRES_BITMAPS,
    POSTGRES_CLOCK,
    POSTGRES_EVENTS_AFTER,
    POSTGRES_HEADS,
    POSTGRES_INDEX_WORDS,
    POSTGRES_MATCHING,
    POSTGRES_UNINDEX_WORDS,
)

FEW = 20
MAX_NUMBERED = 10_000
FROM_ARRAYS = {
    table: f"SELECT * FROM unnest({', '.join(f'?::{kind}[]' for _, kind in columns)})"
    for table, columns in schema.COLUMNS.items()
}


@lru_cache(maxsize=1000)
def numbered(sql: str) -> bytes:
    """The statement with `$1`, `$2` … for its `?` placeholders."""
    first, *rest = sql.split("?")
    return (first + "".join(f"${i}{part}" for i, part in enumerate(rest, 1))).encode()


class PostgresSession:
    for_update = " FOR UPDATE"
    for_key_share = " FOR KEY SHARE"
    skip_locked = " FOR UPDATE OF t SKIP LOCKED"
    wait_locked = " FOR UPDATE OF t"
    events_after = POSTGRES_EVENTS_AFTER
    event_number = "seq"
    clock = POSTGRES_CLOCK

    def __init__(self, connection: psycopg.Connection[Row], caches: ProcessCaches) -> None:
        self._connection = connection
        self.pending: list[Row] = []
        self.caches = caches

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._execute(sql, values).fetchall()

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._execute(sql, values)

    def run_many(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        for row in values:
            self._execute(sql, row)

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self._execute(*_insertion(table, rows))

    def together(
        self, statements: Sequence[Statement], inserts: Sequence[tuple[str, Sequence[Row]]] = ()
    ) -> list[Row]:
        """One statement with the others as its WITH clauses: one round trip for all."""
        parts = [_insertion(table, rows) for table, rows in inserts if rows] + list(statements)
        *others, (last, last_values) = parts
        clauses = ", ".join(f"w{i} AS ({sql})" for i, (sql, _) in enumerate(others))
        values = [value for _, part in others for value in part] + list(last_values)
        cursor = self._execute(f"WITH {clauses} {last}" if clauses else last, values)
        return cursor.fetchall() if "RETURNING" in last else []

    def lock(self, name: str) -> None:
        self._execute(
            "SELECT pg_advisory_xact_lock(?::int, hashtext(?))", (schema.APPLICATION_ID, name)
        )

    def number_events(self) -> None:
        self.lock("events")
        while len(self.rows(NUMBER_EVENTS, (MAX_NUMBERED,))) == MAX_NUMBERED:
            pass

    def heads(self, lanes: Sequence[int]) -> list[Row]:
        return self.rows(POSTGRES_HEADS, (list(lanes), [0] * len(lanes)))

    def index_words(self, number: int, words: Sequence[str]) -> None:
        self.run(POSTGRES_INDEX_WORDS, (number, list(words)))

    def unindex_words(self, number: int) -> None:
        self.run(POSTGRES_UNINDEX_WORDS, (number,))

    def matching(self, groups: Sequence[Sequence[str]], limit: int) -> list[int]:
        query = " & ".join(f"({' | '.join(map(repr, group))})" for group in groups)
        self.run(POSTGRES_BITMAPS)
        return [row[0] for row in self.rows(POSTGRES_MATCHING, (query, limit))]

    def _execute(self, sql: str, values: Sequence[Any]) -> psycopg.RawCursor[Row]:
        cursor = psycopg.RawCursor(self._connection)
        cursor.execute(numbered(sql), values)
        return cursor


def _insertion(table: str, rows: Sequence[Sequence[Any]]) -> Statement:
    if len(rows) > FEW:
        columns = [list(column) for column in zip(*rows, strict=True)]
        return f"{schema.INTO[table]} {FROM_ARRAYS[table]}", columns
    # plain values are cheaper to send than arrays
    placeholders = f"({', '.join('?' * len(rows[0]))})"
    return f"{schema.INTO[table]} VALUES {', '.join([placeholders] * len(rows))}", [
        value for row in rows for value in row
    ]
