"""Turns SQLite's errors into ours."""

from __future__ import annotations

import os
from typing import Any

import apsw

from hypervisor.core.errors import (
    StoreBroken,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from hypervisor.store.database import Conflict
from hypervisor.store.write_lock import NO_ROOM

DUPLICATE = (apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_UNIQUE)


class Errors:
    """A context in which SQLite's errors are raised as ours."""

    def __init__(self, where: str, connection: apsw.Connection | None = None) -> None:
        self._where = where
        self._connection = connection

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, apsw.Error):
            number = self._connection.system_errno if self._connection else 0
            raise translate(error, self._where, number) from error
        if isinstance(error, UnicodeDecodeError):
            raise damaged(self._where, "it contains invalid text") from error


def translate(error: apsw.Error, where: str, number: int = 0) -> Exception:
    kept = "Nothing was changed"
    if getattr(error, "extendedresult", 0) in DUPLICATE:
        return Conflict(str(error))
    if isinstance(error, (apsw.NotADBError, apsw.CorruptError)):
        return damaged(where, str(error))
    if isinstance(error, apsw.ReadOnlyError):
        return StoreReadOnly(f"{where} cannot be written. {kept}; check its permissions and disk.")
    out_of_room = isinstance(error, apsw.IOError) and number in NO_ROOM
    if isinstance(error, apsw.FullError) or out_of_room:
        return StoreFull(f"no space left for {where}. {kept}; free some space and try again.")
    if isinstance(error, apsw.BusyError):
        return StoreUnavailable(f"{where} is locked by another program. {kept}; try again.")
    if isinstance(error, apsw.CantOpenError):
        if os.path.exists(where) and not os.access(where, os.W_OK):
            return StoreReadOnly(f"{where} cannot be opened. {kept}; check its permissions.")
        return StoreUnavailable(f"{where} cannot be opened. {kept}; check path and permissions.")
    return StoreError(f"{where}: {error}. {kept}; `hv doctor` checks the store.")


def damaged(where: str, how: str) -> StoreBroken:
    return StoreBroken(
        f"{where} is damaged or not a Hypervisor store ({how}). Nothing was changed; "
        "restore a backup or choose another path with --store."
    )
