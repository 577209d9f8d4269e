"""Tasks: added, changed, looked at, with their events and receipts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypervisor.batches.sql import chunks as chunking
from hypervisor.queue.add import with_fresh_ids
from hypervisor.queue.event import Event
from hypervisor.queue.lease import Token
from hypervisor.queue.receipt import ChainReport, Receipt
from hypervisor.queue.sql import insert, queries, receipts, steer
from hypervisor.queue.task import (
    Added,
    Batch,
    Changes,
    Json,
    NewTask,
    Stats,
    Task,
    TaskDetail,
    TaskFilter,
)
from tests.support.ledger.base import LedgerBase


class TasksLedger(LedgerBase):
    def tasks(self, ids: Sequence[str]) -> list[Task]:
        return self._db.read(lambda s: queries.tasks(s, ids)) if ids else []

    def amend(self, task: str, changes: dict[str, Any], actor: str, now: int | None = None) -> Json:
        at = self._at(now)
        return self._write(lambda s: chunking.amend(s, task, changes, actor, at))

    def add(
        self, tasks: Sequence[NewTask], batch: str | None, actor: str, now: int | None = None
    ) -> Added:
        return with_fresh_ids(
            lambda at: self._db.write(insert.add, tasks, batch, actor, at), self._at(now)
        )

    def check_links(self, tasks: Sequence[NewTask], batch: str) -> None:
        self._db.read(lambda s: insert.check_links(s, tasks, batch))

    def cancel(self, task: str, reason: str, actor: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._write(lambda s: steer.cancel(s, task, reason, actor, at))

    def reopen(
        self,
        task: str,
        reason: str,
        actor: str,
        now: int | None = None,
        attempts: int | None = None,
    ) -> str:
        at = self._at(now)
        return self._write(
            lambda s: steer.requeue(s, task, "reopen", reason, actor, now=at, attempts=attempts)
        )

    def accept(self, task: str, actor: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._write(lambda s: steer.requeue(s, task, "accept", "", actor, now=at))

    def take_back(self, task: str, reason: str, actor: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._write(lambda s: steer.revoke_claim(s, task, reason, actor, at))

    def update(self, task: str, changes: Changes, actor: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._write(lambda s: steer.update(s, task, changes, actor, at))

    def append_under_claim(
        self, token: Token, texts: list[str], now: int | None = None
    ) -> list[Receipt]:
        at = self._at(now)
        return self._write(lambda s: receipts.append_under_claim(s, token, texts, at))

    def append(
        self, task: str, actor: str, texts: list[str], now: int | None = None
    ) -> list[Receipt]:
        at = self._at(now)
        return self._write(lambda s: receipts.append(s, task, actor, texts, at))

    def receipts_of_task(self, task: str) -> list[Receipt]:
        return self._db.read(lambda s: receipts.of_task(s, task))

    def receipts_of_tasks(self, tasks: Sequence[str]) -> dict[str, list[Receipt]]:
        return self._db.read(lambda s: receipts.of_tasks(s, tasks))

    def receipts_of_chain(self, chain: str) -> list[Receipt]:
        return self._db.read(lambda s: receipts.chain_receipts(s, chain))

    def check_receipts(self, chain: str | None) -> list[ChainReport]:
        return self._db.read(lambda s: receipts.check(s, chain))

    def resolve(self, text: str) -> str:
        return self._db.read(lambda s: queries.resolve(s, text))

    def task(self, task: str) -> Task:
        return self._db.read(queries.task, task)

    def detail(self, task: str) -> TaskDetail:
        return self._db.read(lambda s: queries.detail(s, task))

    def list_tasks(self, wanted: TaskFilter, limit: int, before: str | None = None) -> list[Task]:
        return self._db.read(lambda s: queries.list_tasks(s, wanted, limit, before))

    def batch(self, text: str) -> Batch:
        return self._db.read(lambda s: queries.batch(s, text))

    def batches(self, limit: int) -> list[Batch]:
        return self._db.read(lambda s: queries.batches(s, limit))

    def stats(self, batch: str | None, now: int | None = None, pace: bool = True) -> Stats:
        return self._db.read(queries.stats, batch, self._at(now), pace)

    def events(self, since: int, limit: int) -> list[Event]:
        return queries.events(self._db, since, limit)
