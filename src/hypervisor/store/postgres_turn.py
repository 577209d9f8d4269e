"""Plain turns over one PostgreSQL connection: prepared once, sent as plain text, read as JSON.

A busy worker takes thousands of turns, all alike. A cursor finds out each time anew how to send
and read every value; here that is known.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from psycopg import errors, pq
from psycopg.generators import execute

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGresult

    from hypervisor.store.session import Row

NAME = b"hypervisor_turn"
FINE = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class Turns:
    def __init__(self, connection: Connection[Row]) -> None:
        self._connection = connection
        self._encoding = connection.info.encoding
        self._prepared = False

    def take(self, sql: bytes, values: Row) -> Row | None:
        """The answer to one turn; by itself, the statement is a transaction."""
        pgconn = self._connection.pgconn
        if not self._prepared:
            pgconn.send_prepare(NAME, sql)
            with suppress(errors.DuplicatePreparedStatement):  # interrupted right after it was
                self._answer()
            self._prepared = True
        pgconn.send_query_prepared(NAME, [self._sent(value) for value in values])
        row = self._answer().get_value(0, 0)
        return None if row is None else tuple(json.loads(row.decode(self._encoding)))

    def _answer(self) -> PGresult:
        answer: PGresult = self._connection.wait(execute(self._connection.pgconn))[-1]
        if answer.status not in FINE:
            raise errors.error_from_result(answer, self._encoding)
        return answer

    def _sent(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, int):
            return b"%d" % value
        if "\0" in value:  # the rest would be cut off
            raise errors.DataError("text cannot contain NUL (0x00) bytes")
        return str(value).encode(self._encoding)
