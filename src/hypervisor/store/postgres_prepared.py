"""A prepared statement of a PostgreSQL connection: values sent as text, the result read as JSON.

For statements that a worker runs thousands of times: a cursor works out at each call how to send
and read every value. Bar: claim and complete at k=1, see decision 0020.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from psycopg import errors, pq
from psycopg.generators import execute

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGresult

    from hypervisor.store.database import Row

DECODE = json.JSONDecoder().raw_decode
SUCCESS = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class PreparedStatement:
    def __init__(self, connection: Connection[Row], name: str, sql: str) -> None:
        self._connection = connection
        self._name, self._sql = name.encode(), sql.encode()
        self._encoding = connection.info.encoding
        self._is_prepared = False

    def run(self, values: Row) -> Row | None:
        """The JSON array that the statement returns; it is a transaction of its own."""
        encoding = self._encoding
        encoded = [None if value is None else str(value).encode(encoding) for value in values]
        if b"\0" in b"".join(filter(None, encoded)):  # the rest would be cut off
            raise errors.DataError("text cannot contain NUL (0x00) bytes")
        try:
            answer = self._execute(encoded)
        except errors.InvalidSqlStatementName:  # psycopg deallocates them all after a rollback
            self._is_prepared = False
            answer = self._execute(encoded)
        return None if answer is None else tuple(DECODE(answer.decode(encoding))[0])

    def _execute(self, values: list[bytes | None]) -> bytes | None:
        pgconn = self._connection.pgconn
        if not self._is_prepared:
            pgconn.send_prepare(self._name, self._sql)
            with suppress(errors.DuplicatePreparedStatement):  # interrupted before the next line
                self._result()
            self._is_prepared = True
        pgconn.send_query_prepared(self._name, values)
        return self._result().get_value(0, 0)

    def _result(self) -> PGresult:
        result: PGresult = self._connection.wait(execute(self._connection.pgconn))[-1]
        if result.status not in SUCCESS:
            raise errors.error_from_result(result, self._encoding)
        return result
