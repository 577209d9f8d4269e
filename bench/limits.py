"""The disk's own limits: the smallest durable commit, and a bare fdatasync."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple


class BareCommit(NamedTuple):
    """The smallest SQLite commit there is: one counter in WAL mode, synchronous=FULL."""

    path: str
    commits: int

    def create(self) -> None:
        """Before the race: two who change the mode of a journal at once get in each other's way."""
        import apsw

        connection = apsw.Connection(self.path)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, n)")
        connection.execute("INSERT OR IGNORE INTO counter VALUES (1, 0)")
        connection.close()

    def ready(self, seat: int, of: int) -> tuple[Callable[[], Any], Callable[[], None]]:
        import apsw

        connection = apsw.Connection(self.path)
        connection.set_busy_timeout(30_000)
        connection.execute("PRAGMA synchronous=FULL")
        count = self.commits // of

        def work() -> int:
            for _ in range(count):
                connection.execute("UPDATE counter SET n = n + 1 WHERE id = 1")
            return count

        return work, connection.close


class BareSync(NamedTuple):
    """Overwrite 4 KB of one file and wait for the disk."""

    path: str
    syncs: int

    def ready(self, seat: int, of: int) -> tuple[Callable[[], Any], Callable[[], None]]:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(file, bytes(4096), seat * 4096)
        os.fsync(file)
        page, count = os.urandom(4096), self.syncs // of

        def work() -> int:
            for _ in range(count):
                os.pwrite(file, page, seat * 4096)
                os.fdatasync(file)
            return count

        return work, lambda: os.close(file)
