"""PostgreSQL errors as ours, and the store's URL without its password."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from hypervisor.core.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from hypervisor.store.database import Conflict


def translated(error: BaseException, where: str) -> BaseException:
    if not isinstance(error, psycopg.Error):
        return error
    if isinstance(error, (pg.DeadlockDetected, pg.SerializationFailure, pg.UndefinedFunction)):
        return error  # handled by the caller
    kept = "Nothing was changed"
    if isinstance(error, pg.UniqueViolation):
        return Conflict(str(error))
    if isinstance(error, pg.ReadOnlySqlTransaction | pg.InsufficientPrivilege):
        return StoreReadOnly(
            f"{where} cannot be written ({_line(error)}). {kept}; check its permissions."
        )
    if isinstance(error, pg.DiskFull):
        return StoreFull(f"no space left for {where}. {kept}; free some space and try again.")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(
            f"{where} did not answer ({_line(error)}). A change in progress may or may not "
            f"have been made; repeating it with the same token or key is safe."
        )
    return StoreError(f"{where}: {_line(error)}. {kept}; `hv doctor` checks the store.")


def _line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def without_secrets(url: str) -> str:
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        raise StoreUnavailable("the store's URL is not a valid PostgreSQL URL") from None
    host, port = parts.get("host", "localhost"), parts.get("port", 5432)
    return f"postgresql://{host}:{port}/{parts.get('dbname', '')}"
