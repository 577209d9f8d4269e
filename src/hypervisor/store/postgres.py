"""PostgreSQL through psycopg 3: many hosts share one store.

Statements of a transaction are pipelined: only a query whose result is needed
costs a round trip. The time is the database's, so hosts need not agree on it.
After a deadlock, the transaction runs again.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any, Concatenate, NoReturn

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from hypervisor.core.errors import InvalidInput, StoreBroken, StoreUnavailable
from hypervisor.store import postgres_checks, postgres_health, schema
from hypervisor.store.database import (
    Answer,
    Given,
    NotInstalled,
    ProcessCaches,
    Program,
    Row,
    Session,
    flush_events,
    refuse_after_fork,
)
from hypervisor.store.dialect import POSTGRES_FRAGMENTS
from hypervisor.store.postgres_connection import NETWORK, SCHEMA, connect
from hypervisor.store.postgres_errors import translated, without_secrets
from hypervisor.store.postgres_prepared import PreparedStatement
from hypervisor.store.postgres_session import PostgresSession
from hypervisor.store.versions import refuse_newer, upgraded

# Our own error reports a lost connection; psycopg must not log a second line
# unless an application asks for it.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

TRIES = 10
QUICK_ANSWER, MAX_MEASUREMENTS = 0.05, 3  # seconds: half of it is how far off the clock may be
REMEASURE_AFTER = 10.0  # seconds until the offset to the database's clock is measured again

MAY_ASK_SERVER = "SELECT has_function_privilege('pg_control_system()', 'execute')"
SERVER = "SELECT system_identifier FROM pg_control_system()"
DATABASE = "SELECT oid::bigint FROM pg_database WHERE datname = current_database()"
EVENTS = """
SELECT seq, at, kind, task, batch, attempt, state, actor, data FROM events
WHERE seq > ? ORDER BY seq LIMIT ?
"""
READ_ONLY = "ISOLATION LEVEL REPEATABLE READ READ ONLY"
VERSION_TABLE = "CREATE TABLE schema_version (version BIGINT NOT NULL)"


class PostgresDatabase:
    """A PostgreSQL database, connected when needed and reconnected after a loss."""

    is_shared = True

    def __init__(self, url: str, relaxed: bool = False) -> None:
        self._url = url
        self._relaxed = relaxed
        self._mutex = threading.RLock()
        self._process = os.getpid()
        self._connection: psycopg.Connection[Row] | None = None
        self._prepared: dict[str, PreparedStatement] = {}
        self.caches = ProcessCaches()
        self.writes = 0  # how many transactions this process has begun
        self._clock: tuple[float, float] = (0.0, 0.0)
        self._begin = ""  # with which a transaction begins behind a pooler
        self._busy_since: float | None = None
        self._used_at = 0.0
        self.where = without_secrets(url)
        given = conninfo_to_dict(url)
        self._network = {key: value for key, value in NETWORK.items() if key not in given}
        self._prepare_schema()

    @classmethod
    def twin_of(cls, other: PostgresDatabase) -> PostgresDatabase:
        """A second connection, for another thread; the schema is known to be right."""
        twin = copy(other)
        twin._mutex, twin._connection, twin._prepared = threading.RLock(), None, {}
        twin.caches, twin._busy_since, twin._process = ProcessCaches(), None, os.getpid()
        return twin

    def twin(self) -> PostgresDatabase:
        return self.twin_of(self)

    def waits_for(self) -> float:
        """How long the current call has been waiting for the database, in seconds."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def cut(self) -> None:
        """Called by another thread: let the current call fail, if the network will not."""
        connection = self._connection
        if connection is not None and not connection.closed:
            with (
                suppress(OSError, psycopg.Error),
                socket.socket(fileno=os.dup(connection.fileno())) as shared,
            ):
                shared.shutdown(socket.SHUT_RDWR)

    def hang_up(self, idle: float) -> None:
        """Close the connection if it has not been used for so many seconds; the next call opens
        another one."""
        with self._mutex:
            if self._connection is not None and time.monotonic() - self._used_at >= idle:
                self.close()

    def read(
        self,
        query: Callable[Concatenate[Session, Given], Answer],
        /,
        *args: Given.args,
        **options: Given.kwargs,
    ) -> Answer:
        with self._mutex:
            return self._transaction(
                lambda session: query(session, *args, **options),
                READ_ONLY,
            )

    def write(
        self,
        change: Callable[Concatenate[Session, Given], Answer],
        /,
        *args: Given.args,
        **options: Given.kwargs,
    ) -> Answer:
        with self._mutex:
            self.writes += 1
            try:
                return self._transaction(lambda s: _checked(s, lambda: change(s, *args, **options)))
            except BaseException:
                self.caches.rolled_back()
                raise

    write_unsynced = write

    def run(self, program: Program) -> Row | None:
        return program.on_postgres(self)

    def run_prepared(self, name: str, sql: str, values: Row) -> Row | None:
        """Run one prepared statement as a transaction of its own and return its JSON array. None:
        it returned null, or lost a conflict. NotInstalled: it calls a function that is missing."""
        with self._mutex:
            try:
                connection = self._connected()
                if self._begin:
                    return None  # it may be prepared on another connection of the pooler
                prepared = self._prepared.get(name)
                if prepared is None:
                    prepared = self._prepared[name] = PreparedStatement(connection, name, sql)
                self._busy_since = time.monotonic()
                return prepared.run(values)
            except (pg.DeadlockDetected, pg.SerializationFailure):
                self._roll_back()
                return None
            except pg.UndefinedFunction:
                self._roll_back()
                raise NotInstalled from None
            except BaseException as error:
                self._fail(error)
            finally:
                self._used()

    def event_rows(self, since: int, limit: int) -> list[Row]:
        """Events get their number when they are first read, after their commit: a number
        assigned earlier could become visible after a reader has passed it."""

        def work(session: Session) -> list[Row]:
            session.number_events()
            return session.rows(EVENTS, (since, limit))

        if self.read(lambda s: s.rows("SELECT 1 FROM events WHERE seq IS NULL LIMIT 1")):
            return self.write(work)
        return self.read(lambda s: s.rows(EVENTS, (since, limit)))

    def check_present(self) -> None:
        """Nothing to check: a server cannot be replaced while we are connected."""

    def check_version(self) -> None:
        with self._mutex:
            version = self._transaction(_version, READ_ONLY)
        if version > schema.VERSION:
            raise upgraded(self.where, version)

    def now(self) -> int:
        """The database's time, carried forward by this host's steady clock for some seconds."""
        with self._mutex:
            offset, measured = self._clock
            steady = time.clock_gettime(time.CLOCK_BOOTTIME)
            if steady - measured > REMEASURE_AFTER:
                offset, steady = self._measure_clock()
            return int((steady + offset) * 1000)

    def _measure_clock(self) -> tuple[float, float]:
        """A slow answer, or a pause of this process, must not make it later than it is: others
        would lose their leases early. Too early does no harm."""
        sql = "SELECT extract(epoch FROM clock_timestamp())::float8"
        for _ in range(MAX_MEASUREMENTS):
            before = time.clock_gettime(time.CLOCK_BOOTTIME)
            database = self._transaction(lambda s: s.rows(sql))[0][0]
            steady = time.clock_gettime(time.CLOCK_BOOTTIME)
            if steady - before <= QUICK_ANSWER:
                self._clock = (database - (before + steady) / 2, steady)
                return self._clock
        self._clock = (database - steady, steady)
        return self._clock

    def location(self) -> str:
        """The ids of the server, if we may read it, and of the database."""

        def work(session: Session) -> str:
            server = session.rows(MAY_ASK_SERVER)[0][0] and session.rows(SERVER)[0][0]
            return f"{server or ''}:{session.rows(DATABASE)[0][0]}"

        return self.read(work)

    def facts(self) -> dict[str, Any]:
        def work(session: Session) -> dict[str, Any]:
            version = session.rows("SHOW server_version")[0][0]
            synchronous = session.rows("SHOW synchronous_commit")[0][0]
            return {
                "database": f"PostgreSQL {version}{', through a pooler' if self._begin else ''}",
                "where": self.where,
                "schema": session.rows("SELECT version FROM schema_version")[0][0],
                "durability": "relaxed"
                if synchronous == "off"
                else "every acknowledged change on disk",
                "integrity": postgres_checks.integrity(session),
                "server": postgres_health.findings(session, SCHEMA),
            }

        return self.read(work)

    def copy_to(self, path: str) -> None:
        raise InvalidInput(
            "a PostgreSQL store is backed up by PostgreSQL: use "
            f"`pg_dump --schema={SCHEMA} --format=custom --file=FILE URL`, and copy the outputs."
        )

    def close(self) -> None:
        with self._mutex:
            if self._connection is not None and os.getpid() == self._process:
                self._connection.close()
            self._connection = None  # after a fork, the parent process still needs it

    def _transaction(self, work: Callable[[Session], Answer], mode: str = "") -> Answer:
        """Run a transaction, and retry it if it loses a conflict with another."""
        for _ in range(TRIES):
            with suppress(pg.DeadlockDetected, pg.SerializationFailure):
                return self._try(work, mode)
            self.caches.rolled_back()  # the next try must not rely on what this one read
        raise StoreUnavailable(
            f"{self.where}: too much lock contention. Nothing was changed; try again."
        )

    def _try(self, work: Callable[[Session], Answer], mode: str) -> Answer:
        """Without a mode, the pipeline itself is the transaction: what is sent until it
        ends is committed together, unless it is rolled back before."""
        try:
            connection = self._connected()
            self._busy_since = time.monotonic()
            with connection.pipeline():
                try:
                    if mode or self._begin:
                        connection.execute(f"BEGIN {mode}")
                    if self._begin:
                        connection.execute(self._begin)
                    session = PostgresSession(connection, self.caches)
                    answer = work(session)
                    flush_events(session)
                    if mode or self._begin:
                        connection.execute("COMMIT")
                except BaseException:
                    with suppress(psycopg.Error):  # the server has already rolled back
                        connection.execute("ROLLBACK")
                    raise
            return answer
        except BaseException as error:
            self._fail(error)
        finally:
            self._used()

    def _used(self) -> None:
        self._busy_since, self._used_at = None, time.monotonic()

    def _fail(self, error: BaseException) -> NoReturn:
        """Roll back, and raise the error as one of ours."""
        self._roll_back()
        if isinstance(error, pg.ReadOnlySqlTransaction):  # it is a replica now: find the primary
            self.close()
        if isinstance(error, pg.DivisionByZero):
            self.check_version()
        ours = translated(error, self.where)
        if ours is error:
            raise error
        raise ours from error

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is None or os.getpid() != self._process:
            return
        if not connection.closed:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
                return
        with suppress(psycopg.Error):
            connection.close()
        self._connection = None

    def _connected(self) -> psycopg.Connection[Row]:
        refuse_after_fork(self._process)
        if self._connection is None or self._connection.closed:
            self._connection, self._begin = connect(self._url, self._network, self._relaxed)
            self._prepared = {}
        return self._connection

    def _prepare_schema(self) -> None:
        version = self._transaction(_version)
        if version == 0:
            self._refuse_encoding()
        if 0 <= version < schema.VERSION:
            version = self._transaction(_migrate)
        refuse_newer(self.where, version)
        if version == -1:
            raise StoreBroken(
                f"{self.where} has a schema `{SCHEMA}` that is not a Hypervisor store. "
                "Nothing was changed; use another database."
            )

    def _refuse_encoding(self) -> None:
        encoding = self._connected().info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreUnavailable(
                f"{self.where} has the encoding {encoding}, which cannot store all text. Nothing "
                f"was changed; create a database with: createdb --encoding=UTF8 "
                f"--template=template0."
            )


def _checked(session: Session, change: Callable[[], Answer]) -> Answer:
    """Make a change, unless the store was upgraded. The server divides by zero then: an answer
    for us to look at would be worth a round trip. What was read stays locked until the end of the
    transaction, and a migration waits for that."""
    session.run(f"SELECT 1 / (version <= {schema.VERSION})::int FROM schema_version")
    return change()


def _version(session: Session) -> int:
    """The version of the schema; 0 if it does not exist yet, -1 if it is not ours."""
    columns = session.rows(
        "SELECT table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = ?",
        (SCHEMA,),
    )
    if not columns:
        return 0
    if ("schema_version", "version", "bigint") not in columns:
        return -1
    rows = session.rows("SELECT version FROM schema_version")
    return int(rows[0][0]) if len(rows) == 1 else -1


def _migrate(session: Session) -> int:
    """Create or migrate the schema; the first process does it. Returns its version."""
    session.lock("migrate")
    session.run(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    version = _version(session)
    if not 0 <= version < schema.VERSION:
        return version
    if version == 0:
        session.run(VERSION_TABLE)
        session.run("INSERT INTO schema_version (version) VALUES (0)")
    session.run("LOCK TABLE schema_version")  # transactions in progress end first: see _checked
    for number in range(version + 1, schema.VERSION + 1):
        for statement in schema.statements(number, POSTGRES_FRAGMENTS):
            session.run(statement)
    session.run("UPDATE schema_version SET version = ?", (schema.VERSION,))
    return schema.VERSION
