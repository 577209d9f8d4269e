"""PostgreSQL through psycopg 3: many hosts share one store.

Statements of a transaction are pipelined: only a query whose result is needed
costs a round trip. The time is the database's, so hosts need not agree on it.
After a deadlock, the transaction runs again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Concatenate, NoReturn

import psycopg
from psycopg import errors as pg
from psycopg.types.numeric import Int8Dumper

from hypervisor.core.errors import StoreBroken, StoreNewer, StoreUnavailable
from hypervisor.store import postgres_checks, schema
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
from hypervisor.store.postgres_errors import translated, without_secrets
from hypervisor.store.postgres_prepared import PreparedStatement
from hypervisor.store.postgres_session import PostgresSession

# Our own error reports a lost connection; psycopg must not log a second line
# unless an application asks for it.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

SCHEMA = "hypervisor"
TRIES = 10
REMEASURE_AFTER = 10.0  # seconds until the offset to the database's clock is measured again

# A queue's tables change faster than their statistics, so the planner always
# uses indexes and plans each statement once.
SETTINGS = f"""
SET search_path TO {SCHEMA}; SET client_min_messages TO warning; SET jit TO off;
SET plan_cache_mode TO force_generic_plan; SET enable_seqscan TO off; SET enable_bitmapscan TO off
"""
MAY_ASK_SERVER = "SELECT has_function_privilege('pg_control_system()', 'execute')"
SERVER = "SELECT system_identifier FROM pg_control_system()"
DATABASE = "SELECT oid::bigint FROM pg_database WHERE datname = current_database()"
EVENTS = """
SELECT seq, at, kind, task, batch, attempt, state, actor, data FROM events
WHERE seq > ? ORDER BY seq LIMIT ?
"""
VERSION_TABLE = "CREATE TABLE schema_version (version BIGINT NOT NULL)"


class PostgresDatabase:
    """A PostgreSQL database, connected when needed and reconnected after a loss."""

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
        self.where = without_secrets(url)
        self._prepare_schema()

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
                "ISOLATION LEVEL REPEATABLE READ READ ONLY",
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
                return self._transaction(lambda session: change(session, *args, **options))
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
                prepared = self._prepared.get(name)
                if prepared is None:
                    prepared = self._prepared[name] = PreparedStatement(connection, name, sql)
                return prepared.run(values)
            except (pg.DeadlockDetected, pg.SerializationFailure):
                self._roll_back()
                return None
            except pg.UndefinedFunction:
                self._roll_back()
                raise NotInstalled from None
            except BaseException as error:
                self._fail(error)

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

    def now(self) -> int:
        """The database's time, carried forward by this host's steady clock for some seconds."""
        with self._mutex:
            offset, measured = self._clock
            steady = time.clock_gettime(time.CLOCK_BOOTTIME)
            if steady - measured > REMEASURE_AFTER:
                sql = "SELECT extract(epoch FROM clock_timestamp())::float8"
                database = self._transaction(lambda s: s.rows(sql))[0][0]
                before, steady = steady, time.clock_gettime(time.CLOCK_BOOTTIME)
                offset = database - (before + steady) / 2
                self._clock = (offset, steady)
            return int((steady + offset) * 1000)

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
                "database": f"PostgreSQL {version}",
                "where": self.where,
                "schema": session.rows("SELECT version FROM schema_version")[0][0],
                "durability": "relaxed"
                if synchronous == "off"
                else "every acknowledged change on disk",
                "integrity": postgres_checks.integrity(session),
            }

        return self.read(work)

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
            with connection.pipeline():
                try:
                    if mode:
                        connection.execute(f"BEGIN {mode}")
                    session = PostgresSession(connection, self.caches)
                    answer = work(session)
                    flush_events(session)
                    if mode:
                        connection.execute("COMMIT")
                except BaseException:
                    with suppress(psycopg.Error):  # the server has already rolled back
                        connection.execute("ROLLBACK")
                    raise
            return answer
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> NoReturn:
        """Roll back, and raise the error as one of ours."""
        self._roll_back()
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
            connection = psycopg.connect(
                self._url, autocommit=True, connect_timeout=10, client_encoding="UTF8"
            )
            connection.adapters.register_dumper(int, Int8Dumper)
            connection.execute(SETTINGS)
            if self._relaxed:
                connection.execute("SET synchronous_commit TO off")
            self._connection = connection
            self._prepared = {}
        return self._connection

    def _prepare_schema(self) -> None:
        version = self._transaction(_version)
        if version == 0:
            self._refuse_encoding()
        if 0 <= version < schema.VERSION:
            version = self._transaction(_migrate)
        if version > schema.VERSION:
            raise StoreNewer(
                f"{self.where} was written by a newer Hypervisor (schema {version}, this one "
                f"knows {schema.VERSION}). Nothing was changed; upgrade Hypervisor."
            )
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
    for number in range(version + 1, schema.VERSION + 1):
        for statement in schema.statements(number, POSTGRES_FRAGMENTS):
            session.run(statement)
    session.run("UPDATE schema_version SET version = ?", (schema.VERSION,))
    return schema.VERSION
