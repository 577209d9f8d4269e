"""What every part of the ledger stands on: the database, the lanes, and how one writes."""

from __future__ import annotations

from collections.abc import Callable

from hypervisor.queue.sql.lanes import LaneBook
from hypervisor.store.database import Answer, Database, Session


class LedgerCore:
    def __init__(self, database: Database) -> None:
        self._db = database
        self._book = LaneBook()
        self.where = database.where

    def _at(self, now: int | None) -> int:
        return self._db.now() if now is None else now

    def _write(self, work: Callable[[Session], Answer], durable: bool = True) -> Answer:
        """A write that fails may have shown us lanes that no longer exist: forget them."""

        def guarded(session: Session) -> Answer:
            try:
                return work(session)
            except BaseException:
                self._book.forget()
                raise

        try:
            return self._db.write(guarded, durable)
        except BaseException:
            self._book.forget()
            raise
