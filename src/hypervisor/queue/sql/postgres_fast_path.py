"""Plain turns over one PostgreSQL connection: prepared once, sent as plain text, read as JSON.

A busy worker takes thousands of turns, all alike. A cursor finds out each time anew how to send
and read every value; here that is known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from psycopg import errors, pq
from psycopg.generators import execute

from hypervisor.queue.sql import fast_path

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGresult

    from hypervisor.store.database import Row, Session

NAME = b"hypervisor_turn"
READ = json.JSONDecoder().raw_decode
FINE = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)

LANE = [name for name, _ in fast_path.NEXT].index("lane")
LOWEST = 0  # no rank is below it
BELIEVED = 100  # milliseconds

# Those of other versions go once they have been there for this long. One that is still in use
# then is made again by whoever misses it, and stays as long once more.
LEFT_ALONE = "30 days"
OTHERS = """
SELECT oid::regprocedure::text, made IS NULL, made < to_char(now() - ?::interval, 'YYYY-MM-DD')
FROM (SELECT oid, obj_description(oid, 'pg_proc') AS made FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace AND proname LIKE 'turn\\_%' AND proname <> ?
        AND pg_has_role(proowner, 'USAGE')) AS others
"""
TODAY = "SELECT to_char(now(), 'YYYY-MM-DD')"


def teach(session: Session) -> None:
    """Teach the database the plain turn, and let it forget what no version in use needs."""
    session.lock("migrate")  # whoever comes first
    session.run(fast_path.POSTGRES_PROGRAM)
    [(today,)] = session.rows(TODAY)
    made = f"COMMENT ON FUNCTION {{}} IS '{today}'"
    session.run(made.format(fast_path.POSTGRES_SIGNATURE))
    for other, undated, old in session.rows(OTHERS, (LEFT_ALONE, fast_path.POSTGRES_NAME)):
        if undated:
            session.run(made.format(other))
        elif old:
            session.run(f"DROP FUNCTION {other}")


class Floors:
    """From which rank on a turn looks for the next task of a lane: from the last one it got.

    A claimed task stays in the index of ready ones until the next VACUUM, and whoever starts at
    the beginning steps over all of them. A task may become ready below a floor (it was put back,
    or freed), so a floor is believed for a moment only, and not when this process wrote anything
    else. Until then younger ones may go first.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}
        self._since = 0

    def of(self, lanes: Sequence[int], now: int) -> list[int]:
        if not 0 <= now - self._since < BELIEVED:
            self.forget()
            self._since = now
        return [self._ranks.get(lane, LOWEST) for lane in lanes]

    def raise_to(self, lane: int, rank: int) -> None:
        self._ranks[lane] = rank

    def forget(self) -> None:
        self._ranks.clear()


class Turns:
    def __init__(self, connection: Connection[Row]) -> None:
        self._connection = connection
        self._encoding = connection.info.encoding
        self._prepared = False

    def take(self, values: Row) -> Row | None:
        """The answer to one turn; by itself, the statement is a transaction."""
        encoding = self._encoding
        sent = [None if value is None else str(value).encode(encoding) for value in values]
        if b"\0" in b"".join(filter(None, sent)):  # the rest would be cut off
            raise errors.DataError("text cannot contain NUL (0x00) bytes")
        try:
            row = self._ask(sent)
        except errors.InvalidSqlStatementName:  # after a rollback, psycopg forgets all of them
            self._prepared = False
            row = self._ask(sent)
        return None if row is None else tuple(READ(row.decode(encoding))[0])

    def _ask(self, values: list[bytes | None]) -> bytes | None:
        pgconn = self._connection.pgconn
        if not self._prepared:
            pgconn.send_prepare(NAME, fast_path.POSTGRES_TURN.encode())
            with suppress(errors.DuplicatePreparedStatement):  # interrupted right after it was
                self._answer()
            self._prepared = True
        pgconn.send_query_prepared(NAME, values)
        return self._answer().get_value(0, 0)

    def _answer(self) -> PGresult:
        answer: PGresult = self._connection.wait(execute(self._connection.pgconn))[-1]
        if answer.status not in FINE:
            raise errors.error_from_result(answer, self._encoding)
        return answer
