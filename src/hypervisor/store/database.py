"""The interface of a database: transactions, and what can be done inside one.

A room's SQL is in functions that take an open `Session` first. Operations pass such a function to
`read` or `write`, which run it in a transaction: `hv.store.read(queries.batch, "nightly")`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Protocol, TypeVar

from hypervisor.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from hypervisor.store.postgres import PostgresDatabase
    from hypervisor.store.sqlite import SqliteDatabase

Row = tuple[Any, ...]
Statement = tuple[str, Sequence[Any]]
Answer = TypeVar("Answer")
Given = ParamSpec("Given")


class Conflict(Exception):
    """A unique constraint refused a row, which was not written."""


class NotInstalled(Exception):
    """A program calls a function that the database does not have yet; nothing was changed."""


def refuse_after_fork(process: int) -> None:
    """A connection belongs to the process that opened it."""
    if os.getpid() != process:
        raise StoreUnavailable(
            "this store was opened before a fork, which would corrupt it. "
            "Nothing was changed; open it again in the child process."
        )


class Cache(Protocol):
    """Something a process remembers about an open database."""

    def rolled_back(self) -> None:
        """A write failed: forget what its transaction may have read."""
        ...


AnyCache = TypeVar("AnyCache", bound=Cache)


class ProcessCaches(dict[type, Any]):
    """One cache of each class, created on first use."""

    def __missing__(self, kind: type[AnyCache]) -> AnyCache:
        cache = self[kind] = kind()
        return cache

    def of(self, kind: type[AnyCache]) -> AnyCache:
        cache: AnyCache = self[kind]
        return cache

    def rolled_back(self) -> None:
        for cache in tuple(self.values()):  # another thread may be adding one
            cache.rolled_back()


class Program(Protocol):
    """A change that each database runs as one statement of its own, which is faster than a
    transaction. Returns None if it changed nothing, because it needs a transaction after all."""

    def on_sqlite(self, database: SqliteDatabase) -> Row | None: ...

    def on_postgres(self, database: PostgresDatabase) -> Row | None: ...


class Session(Protocol):
    """One open transaction. SQL uses `?` for values and runs on both databases."""

    for_update: str  # appended to a SELECT of rows that will be changed
    for_key_share: str  # appended to a SELECT of rows that must not be deleted meanwhile
    skip_locked: str  # appended to skip rows that others have locked
    wait_locked: str  # appended to wait for rows that others have locked
    events_after: str  # a query of the events above a number, and of those not numbered yet
    event_number: str  # the column of an event's number
    clock: str  # the time of the database in milliseconds, as an expression
    pending: list[Row]  # event lines, written together before the commit
    caches: ProcessCaches

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a query and return all its rows."""
        ...

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Run a statement and ignore its result."""
        ...

    def run_many(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row of values."""
        ...

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert whole rows, even many, into a table of `schema.COLUMNS`."""
        ...

    def together(
        self, statements: Sequence[Statement], inserts: Sequence[tuple[str, Sequence[Row]]] = ()
    ) -> list[Row]:
        """Run statements and inserts, none of which reads what another writes, in one round trip
        if possible. Returns the rows of the last statement."""
        ...

    def lock(self, name: str) -> None:
        """Take a lock that one transaction at a time can hold (a no-op with a single writer)."""
        ...

    def number_events(self) -> None:
        """Number the events that are committed and have no number yet."""
        ...

    def heads(self, lanes: Sequence[int]) -> list[Row]:
        """The best rank in each of these lanes that has ready tasks: (rank, lane)."""
        ...

    def index_words(self, number: int, words: Sequence[str]) -> None:
        """Index a finding under exactly these words."""
        ...

    def unindex_words(self, number: int) -> None: ...

    def matching(self, groups: Sequence[Sequence[str]], limit: int) -> list[int]:
        """The newest findings that have at least one word of each group. Words consist of ASCII
        letters, digits and colons."""
        ...


class Database(Protocol):
    """One open database: runs functions inside transactions, knows the time."""

    where: str
    is_shared: bool  # by several hosts

    caches: ProcessCaches

    def read(
        self,
        query: Callable[Concatenate[Session, Given], Answer],
        /,
        *args: Given.args,
        **options: Given.kwargs,
    ) -> Answer:
        """Run a function on one consistent view."""
        ...

    def write(
        self,
        change: Callable[Concatenate[Session, Given], Answer],
        /,
        *args: Given.args,
        **options: Given.kwargs,
    ) -> Answer:
        """Run a function in a write transaction; return once it is committed and on disk."""
        ...

    def write_unsynced(
        self,
        change: Callable[Concatenate[Session, Given], Answer],
        /,
        *args: Given.args,
        **options: Given.kwargs,
    ) -> Answer:
        """Like `write`, without waiting for the disk: a power cut may undo it."""
        ...

    def run(self, program: Program) -> Row | None:
        """Run a program's statement for this database."""
        ...

    def event_rows(self, since: int, limit: int) -> list[Row]:
        """Events numbered above `since`, in order; none appears later below a returned one."""
        ...

    def check_present(self) -> None:
        """Raise StoreGone if the store's path no longer leads to the open file."""
        ...

    def check_version(self) -> None:
        """Raise StoreNewer if a newer version has upgraded the store; every write does that."""
        ...

    def now(self) -> int:
        """Milliseconds since 1970 by the clock all users of this store share."""
        ...

    def location(self) -> str:
        """Where the data is, the same for every path or URL that leads there."""
        ...

    def facts(self) -> dict[str, Any]:
        """Facts about the database, for `hv doctor`."""
        ...

    def copy_to(self, path: str) -> None:
        """Write a copy to a new file, while others keep writing. InvalidInput: it is not a file."""
        ...

    def twin(self) -> Database:
        """A second connection, for another thread."""
        ...

    def waits_for(self) -> float:
        """How long the current call has been waiting for the database, in seconds."""
        ...

    def cut(self) -> None:
        """Called by another thread: let the current call fail."""
        ...

    def hang_up(self, idle: float) -> None:
        """Close a connection that has not been used for so many seconds, until it is needed."""
        ...

    def close(self) -> None: ...


class WithoutNetwork:
    """A database that only processes of this host use."""

    is_shared = False

    def twin(self) -> NoReturn:
        raise NotImplementedError

    def waits_for(self) -> float:
        return 0.0

    def cut(self) -> None:
        """Nothing to cut."""

    def hang_up(self, idle: float) -> None:
        """An open file costs others nothing."""


def flush_events(session: Session) -> None:
    """Write the event lines of a transaction, at its end."""
    lines, session.pending = session.pending, []
    session.insert("events", lines)


@lru_cache(maxsize=1000)
def marks(count: int) -> str:
    """Placeholders for an IN list, rounded up so that there are few distinct statements."""
    return ",".join("?" * _padded(count))


def pad(values: Sequence[Any]) -> list[Any]:
    """Values for `marks(len(values))`: the last one repeated."""
    missing = _padded(len(values)) - len(values)
    return [*values, *[values[-1]] * missing] if missing else list(values)


def slices(values: Sequence[Any], size: int = 512) -> Iterable[Sequence[Any]]:
    """Split values into parts short enough for an IN list."""
    if len(values) <= size:
        return (values,) if values else ()
    return [values[start : start + size] for start in range(0, len(values), size)]


@lru_cache(maxsize=1000)
def _padded(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()
