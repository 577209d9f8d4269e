"""What all parts of the ledger share: the open database, and a `now` that may be left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypervisor.store import settings
from hypervisor.store.database import Answer, Database, Session


class LedgerBase:
    def __init__(self, database: Database) -> None:
        self._db = database
        database.caches.clear()  # as a new process would know it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def _at(self, now: int | None) -> int:
        return self._db.now() if now is None else now

    def _write(self, work: Callable[[Session], Answer], durable: bool = True) -> Answer:
        return (self._db.write if durable else self._db.write_unsynced)(work)

    def identity(self) -> str:
        return settings.identity(self._db)
