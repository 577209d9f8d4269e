"""Rules, notices and the cursors over the events."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.notifications.notice import Ending, Notice, NoticeState, Rule
from hypervisor.notifications.sql import cursors, notices
from hypervisor.queue.event import Cursor
from tests.support.ledger.base import LedgerBase


class NotificationsLedger(LedgerBase):
    def cursor(self, name: str) -> int:
        return self._db.read(lambda s: cursors.cursor(s, name))

    def cursors(self) -> list[Cursor]:
        return self._db.read(cursors.cursors)

    def move_cursor(self, name: str, number: int, now: int | None = None) -> None:
        at = self._at(now)
        self._write(lambda s: cursors.move(s, name, number, at), durable=False)

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
        at = self._at(now)
        return self._write(lambda s: notices.take(s, rule, who, at + lease, at), durable=False)

    def notice_sent(self, notice: Notice) -> None:
        self._write(lambda s: notices.sent(s, notice), durable=False)

    def notice_missed(self, notice: Notice, why: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._write(lambda s: notices.missed(s, notice, why, at))

    def notices(self, state: str, rule: str = "", limit: int = 100) -> list[Notice]:
        return self._db.read(lambda s: notices.listed(s, NoticeState(state), rule, limit))

    def retry_notices(self, rule: str = "") -> int:
        return self._write(lambda s: notices.retry(s, rule))

    def drop_notices(self, rule: str = "") -> int:
        return self._write(lambda s: notices.drop(s, rule))

    def notices_waiting(self) -> dict[str, tuple[int, int]]:
        return self._db.read(notices.waiting)

    def ending(self, batch: str, chunk: int = 0) -> Ending | None:
        return self._db.read(lambda s: notices.ending(s, batch, chunk))
