"""The fast path on PostgreSQL: a function in the database, installed when it is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreReadOnly
from hypervisor.queue.sql import fast_path
from hypervisor.store.database import NotInstalled

if TYPE_CHECKING:
    from hypervisor.store.database import Row, Session
    from hypervisor.store.postgres import PostgresDatabase

NAME = "hypervisor_turn"
LANE = [name for name, _ in fast_path.NEXT].index("lane")
ANY_LANE = -1  # the hint for all lanes together
LOWEST = 0  # no rank is below it
HINT_LIFETIME = 100  # milliseconds

# Functions of other versions are dropped after this time. One that is still in use is installed
# again by the first process that misses it, and kept for the same time again.
KEPT_FOR = "30 days"
OTHERS = """
SELECT oid::regprocedure::text, made IS NULL, made < to_char(now() - ?::interval, 'YYYY-MM-DD')
FROM (SELECT oid, obj_description(oid, 'pg_proc') AS made FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace AND proname LIKE 'turn\\_%' AND proname <> ?
        AND pg_has_role(proowner, 'USAGE')) AS others
"""
TODAY = "SELECT to_char(now(), 'YYYY-MM-DD')"


class RankHints:
    """The rank from which to search for the next task of a lane: that of the last one claimed.

    A claimed task stays in the index of ready ones until the next VACUUM, and a search from the
    start passes over all of them. A task may become ready below that rank (it was put back, or
    freed), so a hint is used only for a short time, and not after this process wrote anything
    else. Until then, newer tasks may go first.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}
        self._since = 0
        self._writes = 0
        self.can_install = True

    def of(self, lanes: Sequence[int], now: int, writes: int) -> list[int]:
        if writes != self._writes or not 0 <= now - self._since < HINT_LIFETIME:
            self._ranks.clear()
            self._since, self._writes = now, writes
        return [self._ranks.get(lane, LOWEST) for lane in lanes]

    def raise_to(self, lane: int, rank: int) -> None:
        self._ranks[lane] = rank

    def rolled_back(self) -> None:
        self._ranks.clear()


def run(database: PostgresDatabase, path: fast_path.FastPath) -> Row | None:
    hints = database.caches.of(RankHints)
    given, lanes, token, latest = path
    while hints.can_install:
        floors = hints.of(lanes or [ANY_LANE], given[0], database.writes)
        values = (*given, _array(lanes), _array(floors), *token, latest)
        try:
            row = database.run_prepared(NAME, fast_path.POSTGRES_STATEMENT, values)
        except NotInstalled:
            _install(database, hints)
            continue
        if row is None:
            return None
        *task, rank = row
        if rank is not None:
            hints.raise_to(task[LANE] if lanes else ANY_LANE, rank)
        return tuple(task)
    return None


def _install(database: PostgresDatabase, hints: RankHints) -> None:
    try:
        database.write(_create)
    except StoreReadOnly:
        hints.can_install = False


def _create(session: Session) -> None:
    """Create the function, and drop those of versions no longer in use."""
    session.lock("migrate")  # one process at a time
    session.run(fast_path.POSTGRES_PROGRAM)
    [(today,)] = session.rows(TODAY)
    dated = f"COMMENT ON FUNCTION {{}} IS '{today}'"
    session.run(dated.format(fast_path.POSTGRES_SIGNATURE))
    for other, undated, old in session.rows(OTHERS, (KEPT_FOR, fast_path.POSTGRES_NAME)):
        if undated:
            session.run(dated.format(other))
        elif old:
            session.run(f"DROP FUNCTION {other}")


def _array(numbers: Sequence[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"
