"""What the rooms need of a database: transactions, and the little that happens inside one.

A room's SQL is functions that take an open `Session` first. Operations hand such a function to
`read` or `write`, which run it in a transaction: `hv.store.read(queries.batch, "nightly")`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from hypervisor.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from hypervisor.store.postgres import PostgresDatabase
    from hypervisor.store.sqlite import SqliteDatabase

Row = tuple[Any, ...]
Statement = tuple[str, Sequence[Any]]
Answer = TypeVar("Answer")
Given = ParamSpec("Given")


class Conflict(Exception):
    """A unique constraint refused a row, which then was not written."""


class NotInstalled(Exception):
    """A program calls a function that the database does not have yet; nothing was changed."""


def refuse_after_fork(process: int) -> None:
    """A connection belongs to the process that opened it."""
    if os.getpid() != process:
        raise StoreUnavailable(
            "this store was opened before a fork, which would corrupt it. "
            "Nothing was changed; open it again in the child process."
        )


class Remembered(Protocol):
    """What a process remembers of an open database, for as long as it is open."""

    def rolled_back(self) -> None:
        """A write failed: forget what its transaction may have shown."""
        ...


Memory = TypeVar("Memory", bound=Remembered)


class Memories(dict[type, Any]):
    """One of each kind, made when first asked for."""

    def of(self, kind: type[Memory]) -> Memory:
        memory: Memory | None = self.get(kind)
        if memory is None:
            memory = self[kind] = kind()
        return memory

    def rolled_back(self) -> None:
        for memory in tuple(self.values()):  # another thread may be adding one
            memory.rolled_back()


class Program(Protocol):
    """A change that each database runs as one statement of its own, which is faster than a
    transaction. Returns None where nothing was changed because the general way has to be taken."""

    def on_sqlite(self, database: SqliteDatabase) -> Row | None: ...

    def on_postgres(self, database: PostgresDatabase) -> Row | None: ...


class Session(Protocol):
    """One open transaction. SQL uses `?` for values and runs on both databases."""

    for_update: str  # appended to a SELECT that reads rows it is going to change
    skip_locked: str  # appended to take the first rows that nobody else is taking
    wait_locked: str  # … or to wait for those that somebody else is looking at
    pending: list[Row]  # event lines, written in one go before the commit
    memories: Memories

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a query and return all its rows."""
        ...

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Run a statement whose answer does not matter."""
        ...

    def run_many(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row of values."""
        ...

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert whole rows into a table of `schema.COLUMNS`, fast for many."""
        ...

    def together(
        self, statements: Sequence[Statement], inserts: Sequence[tuple[str, Sequence[Row]]] = ()
    ) -> list[Row]:
        """Run statements and inserts of which none reads what another writes, in one go where
        the database can. Returns the rows of the last statement."""
        ...

    def lock(self, name: str) -> None:
        """Let one transaction at a time go on from here (a no-op with a single writer)."""
        ...

    def heads(self, lanes: Sequence[int]) -> list[Row]:
        """The best rank in each of these lanes that has ready tasks: (rank, lane)."""
        ...

    def index_words(self, number: int, words: Sequence[str]) -> None:
        """Let a finding be found by these words, and no longer by any others."""
        ...

    def unindex_words(self, number: int) -> None: ...

    def matching(self, groups: Sequence[Sequence[str]], limit: int) -> list[int]:
        """The newest findings that have at least one word of each group. A word is letters,
        digits and colons of ASCII."""
        ...


class Database(Protocol):
    """One open database: runs functions inside transactions, knows the time."""

    where: str

    memories: Memories

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
        """The same without waiting for the disk: a power cut may undo it."""
        ...

    def run(self, program: Program) -> Row | None:
        """Run a program for this database."""
        ...

    def event_rows(self, since: int, limit: int) -> list[Row]:
        """Events numbered above `since`, in order; none ever appears below one returned."""
        ...

    def check_present(self) -> None:
        """Raise StoreGone if what is open is no longer what has the store's name."""
        ...

    def now(self) -> int:
        """Milliseconds since 1970 by the clock all users of this store share."""
        ...

    def location(self) -> str:
        """Where the bytes are, however one gets there; a copy is somewhere else."""
        ...

    def facts(self) -> dict[str, Any]:
        """What `hv doctor` should know about the database."""
        ...

    def close(self) -> None: ...


def flush_events(session: Session) -> None:
    """The event lines of a transaction are written at its end, all at once."""
    lines, session.pending = session.pending, []
    session.insert("events", lines)


@lru_cache(maxsize=1000)
def marks(count: int) -> str:
    """Placeholders for an IN list, rounded up so that few distinct statements arise."""
    return ",".join("?" * _padded(count))


def pad(values: Sequence[Any]) -> list[Any]:
    """Values for `marks(len(values))`: the last one repeated."""
    missing = _padded(len(values)) - len(values)
    return [*values, *[values[-1]] * missing] if missing else list(values)


def slices(values: Sequence[Any], size: int = 512) -> Iterable[Sequence[Any]]:
    """Slices short enough for one IN list."""
    if len(values) <= size:
        return (values,) if values else ()
    return [values[start : start + size] for start in range(0, len(values), size)]


@lru_cache(maxsize=1000)
def _padded(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()
