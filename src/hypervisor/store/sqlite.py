"""SQLite through apsw: one file, many processes.

Writers queue fairly on a lock file. A commit is made without waiting for the
disk (`synchronous=NORMAL`), the lock is let go, and only then is the
write-ahead log synced, before the change is acknowledged: processes share
syncs instead of queueing for them. Safe because the log is a sequence: syncing
it makes everything up to and including our commit durable. See
docs/decisions/0003.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Concatenate

import apsw

from hypervisor.core.errors import (
    StoreBroken,
    StoreGone,
    StoreNewer,
    StoreUnavailable,
)
from hypervisor.store import schema
from hypervisor.store.clock import Clocks, HostClocks, StoreClock
from hypervisor.store.database import (
    Answer,
    Given,
    Memories,
    Program,
    Row,
    Session,
    flush_events,
    refuse_after_fork,
)
from hypervisor.store.dialect import (
    SQLITE_WORDS,
)
from hypervisor.store.mounts import network_file_system
from hypervisor.store.restored import Notes, refuse_foreign_log
from hypervisor.store.sqlite_errors import Errors
from hypervisor.store.sqlite_session import SqliteSession
from hypervisor.store.write_lock import WriteLock

BUSY_TIMEOUT = 30_000
# Seconds between two looks of the fast path whether the file is still there: each costs a tenth
# of it, and a deleted file takes what was written just before with it as well.
CHECK_EVERY = 0.01
LOG_PAGES = 4000  # so many in the write-ahead log are copied into the database file
KEPT_MEMORY = 1 << 20
EVENTS = """
SELECT id, at, kind, task, batch, attempt, state, actor, data FROM events
WHERE id > ? ORDER BY id LIMIT ?
"""


class SqliteDatabase:
    """A store file, opened for this process."""

    def __init__(self, path: str, relaxed: bool = False, clocks: Clocks | None = None) -> None:
        self.where = path
        self.memories = Memories()
        self._relaxed = relaxed
        self._mutex = threading.RLock()
        self._process = os.getpid()
        self._lock = WriteLock(path)
        self._log_file = -1
        self._log_limit = LOG_PAGES
        self._log_tried = 0
        self._log = _Log()
        self._check_again = 0.0
        self._notes = Notes(path)
        self._set_up: set[tuple[str, ...]] = set()
        self._clock = StoreClock(self, clocks or HostClocks())
        _keep_freed_memory()
        _refuse_network_file_system(path)
        _refuse_second_name(path)
        refuse_foreign_log(path)
        with Errors(path):
            self._connection = apsw.Connection(path)
            self._file = _file_at(path)
            self._errors = Errors(path, self._connection)
            self._connection.set_busy_timeout(BUSY_TIMEOUT)
            # One plan per statement: otherwise it is planned anew for every LIMIT.
            self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        try:
            with self._errors:
                version = self._consistent(self._check_identity)
                self._lock.open()
                if version < schema.VERSION:
                    version = self._begin_log_alone()
                else:
                    self._connection.pragma("journal_mode", "wal")
                self._connection.pragma("synchronous", "normal")
                self._connection.set_wal_hook(self._log)
            file = os.stat(path)
            self._location = f"{file.st_dev}:{file.st_ino}"
            self._session = SqliteSession(self._connection, self.memories)
            if version < schema.VERSION:
                self.write(self._migrate)
        except BaseException:
            self.close()
            raise

    def read(
        self,
        query: Callable[Concatenate[Session, Given], Answer],
        /,
        *args: Given.args,
        **options: Given.kwargs,
    ) -> Answer:
        refuse_after_fork(self._process)
        with self._mutex, self._errors:
            self.check_present()
            self._connection.execute("BEGIN")
            try:
                return query(self._session, *args, **options)
            finally:
                self._connection.execute("COMMIT")

    def write(
        self,
        change: Callable[Concatenate[Session, Given], Answer],
        /,
        *args: Given.args,
        **options: Given.kwargs,
    ) -> Answer:
        return self._write(lambda session: change(session, *args, **options), True)

    def write_unsynced(
        self,
        change: Callable[Concatenate[Session, Given], Answer],
        /,
        *args: Given.args,
        **options: Given.kwargs,
    ) -> Answer:
        return self._write(lambda session: change(session, *args, **options), False)

    def run(self, program: Program) -> Row | None:
        return program.on_sqlite(self)

    def run_alone(self, set_up: tuple[str, ...], sql: str, values: Sequence[Any]) -> list[Row]:
        """Run one statement as a transaction of its own: the write lock is held no longer than
        the statement takes. `set_up` is run once per connection."""
        refuse_after_fork(self._process)
        with self._mutex, self._errors:
            if set_up not in self._set_up:
                for statement in set_up:
                    self._connection.execute(statement)
                self._set_up.add(set_up)
            self._lock.take()
            try:
                rows = self._session.rows(sql, values)
            finally:
                self._lock.release()
            self._note_log()
            if rows and not self._relaxed:
                self._sync()
            if time.monotonic() >= self._check_again:
                self.check_present()
                self._check_again = time.monotonic() + CHECK_EVERY
            self._empty_log()
        return rows

    def _write(self, work: Callable[[Session], Answer], durable: bool) -> Answer:
        refuse_after_fork(self._process)
        with self._mutex, self._errors:
            try:
                self._lock.take()
                try:
                    answer = self._transaction(work)
                finally:
                    self._lock.release()
                self._note_log()
                if durable and not self._relaxed:
                    self._sync()
                self.check_present()  # last: a change to a file that is gone is not kept
            except BaseException:
                self.memories.rolled_back()
                raise
            self._empty_log()
            return answer

    def event_rows(self, since: int, limit: int) -> list[Row]:
        return self.read(lambda s: s.rows(EVENTS, (since, limit)))

    def check_present(self) -> None:
        """A file that was deleted stays readable and writable for who has it open: only its name
        tells. Nobody else would ever see what is written to it."""
        if self._log_file < 0:
            self._open_log()
        log_deleted = self._log_file >= 0 and not os.fstat(self._log_file).st_nlink
        if log_deleted or _file_at(self.where) != self._file:
            self._check_again = 0.0
            raise StoreGone(
                f"{self.where} was deleted, moved or replaced while it was in use. Nothing more is "
                "started, and nothing new can be kept; put it back, or run the command again to "
                "begin a new store."
            )

    def now(self) -> int:
        return self._clock.now()

    def location(self) -> str:
        return self._location

    def facts(self) -> dict[str, Any]:
        with self._mutex, self._errors:
            found = self._connection.execute("PRAGMA quick_check").fetchall()
            there = {row[0] for row in self._connection.execute("SELECT name FROM sqlite_schema")}
            missing = [f"table {name} is missing" for name in schema.tables() if name not in there]
            return {
                "database": f"SQLite {apsw.sqlite_lib_version()}",
                "where": self.where,
                "schema": self._connection.pragma("user_version"),
                "durability": "relaxed" if self._relaxed else "every acknowledged change on disk",
                "integrity": "; ".join(missing) or "; ".join(str(row[0]) for row in found),
                "bytes": os.path.getsize(self.where),
            }

    def close(self) -> None:
        if os.getpid() != self._process:
            return  # after a fork, all of it is the other process's
        with self._mutex:
            self._connection.close()
            self._notes.forget(self._lock.handle)
            self._lock.close()
            if self._log_file >= 0:
                os.close(self._log_file)
                self._log_file = -1

    def _transaction(self, work: Callable[[Session], Answer]) -> Answer:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            answer = work(self._session)
            flush_events(self._session)
            self._connection.execute("COMMIT")
            return answer
        except BaseException:
            self._session.pending.clear()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _open_log(self) -> None:
        """Stays open as long as the connection does; while it is open, the log cannot be the
        file of another, later store."""
        with suppress(FileNotFoundError):  # nothing was read or written yet, or it is gone
            self._log_file = os.open(self.where + "-wal", os.O_RDONLY | os.O_CLOEXEC)

    def _sync(self) -> None:
        if self._log_file < 0:
            self._open_log()
        try:
            os.fdatasync(self._log_file)
        except OSError as error:
            raise StoreUnavailable(
                f"the disk did not confirm the change ({error.strerror}): {self.where}. "
                "It may or may not survive a power cut; check the disk, then look with `hv show`."
            ) from error

    def _empty_log(self) -> None:
        """Copy a long log into the database file, so that it can start over.

        Nearly all is copied while others write. For what they wrote meanwhile, and for the sync of
        the database file once all is copied, they have to wait; then the next writer finds
        nothing left to copy and starts over.
        Whoever is not the first to come leaves it. The change is made whatever comes of it."""
        if self._log.pages < self._log_limit:
            self._log_tried = 0
            return
        if self._log_tried and self._log.pages < self._log_tried + self._log_limit // 4:
            return
        self._log_tried = self._log.pages
        with suppress(apsw.Error, StoreUnavailable):
            self._lock.take()
            self._notes.checkpoint(self._lock.handle)
            self._lock.release()
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._lock.take()
            try:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                if self._log_file >= 0:
                    self._notes.write(self._lock.handle, self._log_file)
            finally:
                self._lock.release()

    def _note_log(self) -> None:
        if self._log_file < 0:
            self._open_log()
        if self._log_file >= 0 and self._notes.is_other_log(self._log_file):
            self._lock.take()
            try:
                self._notes.refresh(self._lock.handle, self._log_file)
            finally:
                self._lock.release()

    def _consistent(self, look: Callable[[], int]) -> int:
        """Several statements on one view: another process may be making the store."""
        self._connection.execute("BEGIN")
        try:
            return look()
        finally:
            if self._connection.in_transaction:  # not after some errors
                self._connection.execute("COMMIT")

    def _begin_log_alone(self) -> int:
        """Two processes that make the same new store at once would lock each other out."""
        self._lock.take()
        try:
            version = self._consistent(self._check_identity)
            self._connection.pragma("journal_mode", "wal")
            return version
        finally:
            self._lock.release()

    def _check_identity(self) -> int:
        """The schema version, 0 for a new file; refuses what is not ours, untouched."""
        ours = self._connection.pragma("application_id")
        version = self._connection.pragma("user_version")
        if ours == schema.APPLICATION_ID:
            if version > schema.VERSION:
                raise StoreNewer(
                    f"{self.where} was written by a newer Hypervisor (schema {version}, this one "
                    f"knows {schema.VERSION}). Nothing was changed; upgrade Hypervisor."
                )
            return int(version)
        if self._connection.execute("SELECT count(*) FROM sqlite_schema").get or ours or version:
            raise StoreBroken(
                f"{self.where} is an SQLite file, but not a Hypervisor store. "
                "Nothing was changed; name another path with --store."
            )
        return 0

    def _migrate(self, session: Session) -> None:
        """Bring an empty or older file up to date, whoever comes first."""
        version = self._check_identity()  # once more: now nobody else can be quicker
        if version == schema.VERSION:
            return
        for number in range(version + 1, schema.VERSION + 1):
            for statement in schema.statements(number, SQLITE_WORDS):
                session.run(statement)
        self._connection.pragma("application_id", schema.APPLICATION_ID)
        self._connection.pragma("user_version", schema.VERSION)
        # Others shall read the tables' definitions anew, also those that were only rewritten.
        self._connection.pragma("schema_version", self._connection.pragma("schema_version") + 1)


class _Log:
    """How long the log is. SQLite says so at each commit, and leaves emptying it to us."""

    pages = 0

    def __call__(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self.pages = pages
        return apsw.SQLITE_OK


def _file_at(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _keep_freed_memory() -> None:
    """When another process has written, SQLite forgets the pages it has read and frees their
    memory. glibc would give that back to the system each time, and fetch it again page by
    page. Once it has seen a large block being freed, it keeps up to twice as much."""
    bytes(KEPT_MEMORY)


def _refuse_network_file_system(path: str) -> None:
    kind = None
    with suppress(OSError):
        kind = network_file_system(os.path.dirname(os.path.abspath(path)))
    if kind:
        raise StoreUnavailable(
            f"{path} is on a network file system ({kind}), where SQLite's locks do not hold. "
            "Nothing was changed; use a local path or a postgresql:// store."
        )


def _refuse_second_name(path: str) -> None:
    """Each name would get a log and a lock of its own."""
    with suppress(OSError):
        if os.stat(path).st_nlink > 1:
            raise StoreUnavailable(
                f"{path} has a second name (a hard link), under which others could write without "
                f"being seen. Nothing was changed; give it a file of its own: cp '{path}' NEW, "
                f"then mv NEW '{path}'."
            )
