"""Known bugs, planted into a child process to prove that the self-test finds them.

They change the code in the memory of that process only: a copy of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from hypervisor.core.records import NamedTuple


class Bug(NamedTuple):
    name: str
    description: str
    part: str  # that must find it
    plant: Callable[[], None]
    on_postgres: bool = True  # whether it can be planted there, too


def _no_fence() -> None:
    """A token is good for whatever attempt its task has now."""
    from hypervisor.queue.lease import Token
    from hypervisor.queue.sql import settlement

    real = settlement._attempts

    def latest(session: Any, verdicts: Sequence[Any]) -> dict[tuple[str, int], Any]:
        rows = real(session, verdicts)
        last = {task: max(n for other, n in rows if other == task) for task, _ in rows}
        return {
            (verdict.token.task, verdict.token.attempt): rows[task, last[task]]
            for verdict in verdicts
            if (task := verdict.token.task) in last
        }

    settlement._attempts = latest
    Token.matches = lambda self, nonce: True  # type: ignore[method-assign]


def _no_sync() -> None:
    from hypervisor.store.sqlite import SqliteDatabase

    SqliteDatabase._sync = lambda self: None  # type: ignore[method-assign]


def _early_reclaim() -> None:
    """A lapsed lease is enough, although the process of the holder lives."""
    from hypervisor.resources.host import LocalHost

    LocalHost.is_gone = lambda self, worker: None  # type: ignore[method-assign]


def _lost_update() -> None:
    """Some changes are answered, but not kept."""
    from hypervisor.store.sqlite import SqliteDatabase

    real = SqliteDatabase._transaction
    made: WeakKeyDictionary[SqliteDatabase, int] = WeakKeyDictionary()

    def forgetful(self: SqliteDatabase, work: Callable[[Any], Any]) -> Any:
        made[self] = made.get(self, 0) + 1
        if made[self] % 25:
            return real(self, work)
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            return work(self._session)
        finally:
            self._session.pending.clear()
            self._connection.execute("ROLLBACK")
            self.caches.rolled_back()

    SqliteDatabase._transaction = forgetful  # type: ignore[method-assign]


def _delete_before_snapshot() -> None:
    from hypervisor.git import removal

    removal.why_kept = lambda *args, **options: []


def _unverified_merge() -> None:
    from hypervisor.git.verify import Verdict, Verifier

    Verifier.verify = lambda self, *args, **options: Verdict(True)  # type: ignore[method-assign]


BUGS = (
    Bug("no-fence", "a stale token is accepted", "zombies", _no_fence),
    Bug(
        "no-sync", "changes are acknowledged before they are on disk", "power-cuts", _no_sync, False
    ),
    Bug("early-reclaim", "a live worker loses its claim", "zombies", _early_reclaim),
    Bug("lost-update", "an acknowledged change is not kept", "simulation", _lost_update, False),
    Bug(
        "delete-before-snapshot",
        "a workspace is deleted before its work is saved",
        "removals",
        _delete_before_snapshot,
        False,
    ),
    Bug("unverified-merge", "work is merged unverified", "merges", _unverified_merge, False),
)


def plant(name: str | None) -> None:
    """Plant a bug into this process."""
    for bug in BUGS:
        if bug.name == name:
            bug.plant()
