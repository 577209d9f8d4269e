"""What notifications need of the ledger: rules, their notices, and what has come to its end."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.notifications.notice import Ending, Notice, Rule
from hypervisor.notifications.sql import notices
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Task
from hypervisor.store.ledger_core import LedgerCore


class NoticeLedger(LedgerCore):
    def add_rule(self, rule: Rule, actor: str, now: int | None = None) -> None:
        at = self._at(now)
        self._write(lambda s: notices.add_rule(s, rule, actor, at))

    def remove_rule(self, name: str, actor: str, now: int | None = None) -> bool:
        at = self._at(now)
        return self._write(lambda s: notices.remove_rule(s, name, actor, at))

    def rules(self) -> list[Rule]:
        return self._db.read(notices.rules)

    def file_notices(self, new: Sequence[Notice], of: Sequence[Rule], seen: int) -> int:
        return self._write(lambda s: notices.file(s, new, of, seen), durable=bool(new))

    def take_notice(self, rule: str, who: str, lease: int, now: int | None = None) -> Notice | None:
        """The next notice of a rule for `who` to deliver within the lease, None if none is due
        or another host is at it."""
        at = self._at(now)
        return self._write(lambda s: notices.take(s, rule, who, at + lease, at), durable=False)

    def notice_sent(self, notice: Notice) -> None:
        """Lost in a power cut, it is sent twice: that is what at least once means."""
        self._write(lambda s: notices.sent(s, notice), durable=False)

    def notice_missed(self, notice: Notice, why: str, now: int | None = None) -> str:
        """Returns "pending" (it is tried again), "failed" (a dead letter now) or "sent"."""
        at = self._at(now)
        return self._write(lambda s: notices.missed(s, notice, why, at))

    def notices(self, state: str, rule: str = "", limit: int = 100) -> list[Notice]:
        return self._db.read(lambda s: notices.listed(s, state, rule, limit))

    def retry_notices(self, rule: str = "") -> int:
        return self._write(lambda s: notices.again(s, rule))

    def drop_notices(self, rule: str = "") -> int:
        return self._write(lambda s: notices.drop(s, rule))

    def notices_waiting(self) -> dict[str, tuple[int, int]]:
        return self._db.read(notices.waiting)

    def ending(self, batch: str, chunk: int = 0) -> Ending | None:
        return self._db.read(lambda s: notices.ending(s, batch, chunk))

    def tasks(self, ids: Sequence[str]) -> list[Task]:
        return self._db.read(lambda s: queries.tasks(s, self._book, ids)) if ids else []
