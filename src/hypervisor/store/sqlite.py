"""SQLite through apsw: one file, many processes.

Writers queue fairly on a lock file. A commit does not wait for the disk
(`synchronous=NORMAL`); the write-ahead log is synced after the lock is
released and before the change is acknowledged, so that processes share syncs
instead of queueing for them. This is safe because the log is a sequence: a
sync makes everything up to and including our commit durable. See
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

from hypervisor.core.errors import StoreBroken, StoreGone, StoreUnavailable
from hypervisor.store import schema
from hypervisor.store.clock import Clocks, HostClocks, StoreClock
from hypervisor.store.database import (
    Answer,
    Given,
    ProcessCaches,
    Program,
    Row,
    Session,
    WithoutNetwork,
    flush_events,
    refuse_after_fork,
)
from hypervisor.store.dialect import SQLITE_FRAGMENTS
from hypervisor.store.restored import Notes, refuse_foreign_log
from hypervisor.store.sqlite_errors import Errors
from hypervisor.store.sqlite_file import (
    file_at,
    keep_freed_memory,
    refuse_network_file_system,
    refuse_second_name,
)
from hypervisor.store.sqlite_session import SqliteSession
from hypervisor.store.versions import refuse_newer, upgraded
from hypervisor.store.write_lock import WriteLock

BUSY_TIMEOUT = 30_000
REWRITE_BYTES = 1 << 20
# How often the fast path checks that the file still exists, in seconds. A check takes a tenth of
# its time, and the writes just before a deletion are lost anyway.
CHECK_EVERY = 0.01
LOG_PAGES = 4000  # a write-ahead log of this length is copied into the database file
EVENTS = """
SELECT id, at, kind, task, batch, attempt, state, actor, data FROM events
WHERE id > ? ORDER BY id LIMIT ?
"""


class SqliteDatabase(WithoutNetwork):
    """A store file, opened for this process."""

    def __init__(self, path: str, relaxed: bool = False, clocks: Clocks | None = None) -> None:
        self.where = path
        self.caches = ProcessCaches()
        self._relaxed = relaxed
        self._mutex = threading.RLock()
        self._process = os.getpid()
        self._lock = WriteLock(path)
        self._log_file = -1
        self._log_limit = LOG_PAGES
        self._log_tried = 0
        self._log_is_suspect = False  # a sync has failed
        self._log = _Log()
        self._check_again = 0.0
        self._notes = Notes(path)
        self._set_up: set[tuple[str, ...]] = set()
        self._clock = StoreClock(self, clocks or HostClocks())
        keep_freed_memory()
        refuse_network_file_system(path)
        refuse_second_name(path)
        refuse_foreign_log(path)
        with Errors(path):
            self._connection = apsw.Connection(path)
            self._file = file_at(path)
            self._errors = Errors(path, self._connection)
            self._connection.set_busy_timeout(BUSY_TIMEOUT)
            # One plan per statement: otherwise SQLite plans it again for every LIMIT.
            self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        try:
            with self._errors:
                version = self._consistent(self._check_identity)
                self._lock.open()
                if version < schema.VERSION:
                    version = self._start_log_locked()
                else:
                    self._connection.pragma("journal_mode", "wal")
                self._connection.pragma("synchronous", "normal")
                self._connection.set_wal_hook(self._log)
            file = os.stat(path)
            self._location = f"{file.st_dev}:{file.st_ino}"
            self._session = SqliteSession(self._connection, self.caches)
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
        """Run one statement as a transaction of its own, so that the write lock is held only for
        that statement. `set_up` is run once per connection."""
        refuse_after_fork(self._process)
        with self._mutex, self._errors:
            if set_up not in self._set_up:
                for statement in set_up:
                    self._connection.execute(statement)
                self._set_up.add(set_up)
            self._lock.take()
            try:
                self._refuse_upgraded()
                rows = self._session.rows(sql, values)
            finally:
                self._lock.release()
            self._note_log()
            if rows and not self._relaxed:
                self._sync()
            if time.monotonic() >= self._check_again:
                self.check_present()
                self._check_again = time.monotonic() + CHECK_EVERY
            self._checkpoint()
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
                self.check_present()  # last: a change to a deleted file is lost
            except BaseException:
                self.caches.rolled_back()
                raise
            self._checkpoint()
            return answer

    def event_rows(self, since: int, limit: int) -> list[Row]:
        return self.read(lambda s: s.rows(EVENTS, (since, limit)))

    def check_present(self) -> None:
        """A deleted file can still be read and written by processes that have it open; only its
        path shows the deletion."""
        if self._log_file < 0:
            self._open_log()
        log_deleted = self._log_file >= 0 and not os.fstat(self._log_file).st_nlink
        if log_deleted or file_at(self.where) != self._file:
            self._check_again = 0.0
            raise StoreGone(
                f"{self.where} was deleted, moved or replaced while it was in use. Nothing "
                f"more will start and nothing new can be saved; put it back, or run the "
                f"command again to create a new store."
            )

    def check_version(self) -> None:
        self.read(lambda _: self._refuse_upgraded())

    def now(self) -> int:
        return self._clock.now()

    def location(self) -> str:
        return self._location

    def facts(self) -> dict[str, Any]:
        with self._mutex, self._errors:
            problems = self._connection.execute("PRAGMA quick_check").fetchall()
            tables = {row[0] for row in self._connection.execute("SELECT name FROM sqlite_schema")}
            missing = [f"table {name} is missing" for name in schema.tables() if name not in tables]
            return {
                "database": f"SQLite {apsw.sqlite_lib_version()}",
                "where": self.where,
                "schema": self._connection.pragma("user_version"),
                "durability": "relaxed" if self._relaxed else "every acknowledged change on disk",
                "integrity": "; ".join(missing) or "; ".join(str(row[0]) for row in problems),
                "bytes": os.path.getsize(self.where),
            }

    def copy_to(self, path: str) -> None:
        """Write a copy as of now to a new file, while others keep writing."""
        with self._mutex, self._errors:
            self._connection.execute("VACUUM INTO ?", (path,))

    def close(self) -> None:
        if os.getpid() != self._process:
            return  # after a fork, it belongs to the parent process
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
            self._refuse_upgraded()
            answer = work(self._session)
            flush_events(self._session)
            self._connection.execute("COMMIT")
            return answer
        except BaseException:
            self._session.pending.clear()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _refuse_upgraded(self) -> None:
        """While holding the lock, which a migration takes, too."""
        [(version,)] = self._session.rows("PRAGMA user_version")
        if version > schema.VERSION:
            raise upgraded(self.where, version)

    def _open_log(self) -> None:
        """Open the log for as long as the connection, so that its inode cannot be reused."""
        with suppress(FileNotFoundError):  # nothing was read or written yet, or it was deleted
            self._log_file = os.open(self.where + "-wal", os.O_RDONLY | os.O_CLOEXEC)

    def _sync(self) -> None:
        if self._log_file < 0:
            self._open_log()
        try:
            if self._log_is_suspect:
                self._write_log_again()
            os.fdatasync(self._log_file)
        except OSError as error:
            self._log_is_suspect = True
            with suppress(OSError, StoreUnavailable):
                self._write_log_again()
            raise StoreUnavailable(
                f"the disk did not confirm the change ({error.strerror}): {self.where}. "
                "It may or may not survive a power cut; check the disk, then check the task "
                "with `hv show`."
            ) from error

    def _write_log_again(self) -> None:
        """After a failed sync. The kernel has forgotten what it could not write and reports that
        only once: a later sync would prove nothing about it, and what follows in the log would be
        lost with it. Writing the same bytes again makes them part of the next sync."""
        self._lock.take()
        log = -1
        try:
            log = os.open(self.where + "-wal", os.O_RDWR | os.O_CLOEXEC)
            offset = 0
            while data := os.pread(log, REWRITE_BYTES, offset):
                offset += os.pwrite(log, data, offset)
            os.fdatasync(log)
            self._log_is_suspect = False
        finally:
            if log >= 0:
                os.close(log)
            self._lock.release()

    def _checkpoint(self) -> None:
        """Copy a long log into the database file, so that it can be restarted.

        Most of it is copied while others write. They wait only while the rest is copied and the
        database file is synced; then the next writer restarts the log. One process does it; the
        change itself is already committed."""
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

    def _consistent(self, query: Callable[[], int]) -> int:
        """Run several statements on one snapshot: another process may be creating the store."""
        self._connection.execute("BEGIN")
        try:
            return query()
        finally:
            if self._connection.in_transaction:  # not after some errors
                self._connection.execute("COMMIT")

    def _start_log_locked(self) -> int:
        """Without the lock, two processes that create the same store would lock each other out."""
        self._lock.take()
        try:
            version = self._consistent(self._check_identity)
            self._connection.pragma("journal_mode", "wal")
            return version
        finally:
            self._lock.release()

    def _check_identity(self) -> int:
        """The schema version, 0 for a new file. Refuses a file that is not ours."""
        app_id = self._connection.pragma("application_id")
        version = self._connection.pragma("user_version")
        if app_id == schema.APPLICATION_ID:
            refuse_newer(self.where, version)
            return int(version)
        if self._connection.execute("SELECT count(*) FROM sqlite_schema").get or app_id or version:
            raise StoreBroken(
                f"{self.where} is an SQLite file, but not a Hypervisor store. "
                "Nothing was changed; choose another path with --store."
            )
        return 0

    def _migrate(self, session: Session) -> None:
        """Create or migrate the schema; the first process does it."""
        version = self._check_identity()  # again: now we hold the lock
        if version == schema.VERSION:
            return
        for number in range(version + 1, schema.VERSION + 1):
            for statement in schema.statements(number, SQLITE_FRAGMENTS):
                session.run(statement)
        self._connection.pragma("application_id", schema.APPLICATION_ID)
        self._connection.pragma("user_version", schema.VERSION)
        # Make others read the table definitions again, including rewritten ones.
        self._connection.pragma("schema_version", self._connection.pragma("schema_version") + 1)


class _Log:
    """The length of the log, which SQLite reports at each commit."""

    pages = 0

    def __call__(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self.pages = pages
        return apsw.SQLITE_OK
