"""One transaction on SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from hypervisor.store import schema
from hypervisor.store.database import ProcessCaches, Row, Statement
from hypervisor.store.dialect import (
    SQLITE_CLOCK,
    SQLITE_EVENTS_AFTER,
    SQLITE_HEAD,
    SQLITE_INDEX_WORDS,
    SQLITE_MATCHING,
    SQLITE_UNINDEX_WORDS,
)

INSERT = {
    table: f"{schema.INTO[table]} VALUES ({', '.join('?' * len(columns))})"
    for table, columns in schema.COLUMNS.items()
}


class SqliteSession:
    for_update = ""
    for_key_share = ""
    skip_locked = ""
    wait_locked = ""
    events_after = SQLITE_EVENTS_AFTER
    event_number = "id"
    clock = SQLITE_CLOCK

    def __init__(self, connection: apsw.Connection, caches: ProcessCaches) -> None:
        self._cursor = connection.cursor()
        self.pending: list[Row] = []
        self.caches = caches

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._cursor.execute(sql, values).fetchall()

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._cursor.execute(sql, values)

    def run_many(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        self._cursor.executemany(sql, values)

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self._cursor.executemany(INSERT[table], rows)

    def together(
        self, statements: Sequence[Statement], inserts: Sequence[tuple[str, Sequence[Row]]] = ()
    ) -> list[Row]:
        rows: list[Row] = []
        for sql, values in statements:
            rows = self.rows(sql, values)
        for table, inserted in inserts:
            self.insert(table, inserted)
        return rows

    def lock(self, name: str) -> None:
        """There is only one writer."""

    def number_events(self) -> None:
        """They are numbered in the order of their commits."""

    def heads(self, lanes: Sequence[int]) -> list[Row]:
        heads = [(self.rows(SQLITE_HEAD, (lane,))[0][0], lane) for lane in lanes]
        return [head for head in heads if head[0] is not None]

    def index_words(self, number: int, words: Sequence[str]) -> None:
        self.run(SQLITE_INDEX_WORDS, (number, " ".join(words)))

    def unindex_words(self, number: int) -> None:
        self.run(SQLITE_UNINDEX_WORDS, (number,))

    def matching(self, groups: Sequence[Sequence[str]], limit: int) -> list[int]:
        query = " AND ".join(_any_of(group) for group in groups)
        return [row[0] for row in self.rows(SQLITE_MATCHING, (query, limit))]


def _any_of(words: Sequence[str]) -> str:
    return "(" + " OR ".join(f'"{word}"' for word in words) + ")"
