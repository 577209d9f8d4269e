"""What batches need that a person reviews: chunks, the actions of their plans, the summary."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from hypervisor.batches.chunk import Chunk
from hypervisor.batches.plans.action import Action, Proposals
from hypervisor.batches.sql import actions, summary
from hypervisor.batches.sql import chunks as chunking
from hypervisor.core.errors import StoreUnavailable
from hypervisor.queue.history import Totals
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Json, NewTask, Task
from hypervisor.runs import sql
from hypervisor.runs.spec import TaskReport
from hypervisor.store.database import Conflict, Session
from hypervisor.store.ledger_core import LedgerCore


class ReviewLedger(LedgerCore):
    # Chunks

    def declare_chunks(self, batch: str, names: Sequence[str], gate: str) -> list[Chunk]:
        return self._write(lambda s: chunking.declare(s, batch, names, gate))

    def chunks(self, batch: str) -> list[Chunk]:
        return self._db.read(lambda s: chunking.every(s, batch))

    def chunk_tasks(self, batch: str, number: int) -> list[Task]:
        def read(session: Session) -> list[Task]:
            found = chunking.tasks(session, batch, number)
            return queries.tasks(session, self._book, found) if found else []

        return self._db.read(read)

    def chunk_report(self, batch: str, number: int, now: int | None = None) -> list[TaskReport]:
        at = self._at(now)
        return self._db.read(lambda s: sql.report_chunk(s, batch, number, at))

    def batches_with_open_chunks(self) -> list[str]:
        return self._db.read(chunking.batches_with_open)

    def amend(self, task: str, changes: dict[str, Any], actor: str, now: int | None = None) -> Json:
        at = self._at(now)
        return self._write(lambda s: chunking.amend(s, task, changes, actor, at))

    def decide_chunk(
        self,
        batch: str,
        number: int,
        decision: str,
        note: str,
        actor: str,
        now: int | None = None,
        in_advance: bool = False,
        may_change: bool = True,
    ) -> list[int]:
        at = self._at(now)
        return self._write(
            lambda s: chunking.decide(
                s, self._book, batch, number, decision, note, in_advance, may_change, actor, at
            )
        )

    def retry_chunk(
        self,
        batch: str,
        number: int,
        tasks: Sequence[str],
        note: str,
        actor: str,
        now: int | None = None,
    ) -> int:
        """Put tasks of a chunk back into the queue with a note for whoever works on them."""
        at = self._at(now)
        return self._write(
            lambda s: chunking.retry(s, self._book, batch, number, tasks, note, actor, at)
        )

    # The summary

    def totals(self, batch: str, now: int | None = None) -> Totals:
        at = self._at(now)
        return self._db.read(lambda s: summary.totals(s, batch, at))

    def any_running(self, batch: str) -> bool:
        """Whether anything of a batch is in progress: a quick look."""
        return self._db.read(lambda s: summary.any_running(s, batch))

    def changed_among(self, tasks: Sequence[str], since: int) -> int:
        return self._db.read(lambda s: summary.changed_among(s, tasks, since)) if tasks else 0

    def results(self, batch: str, after: str, limit: int) -> list[tuple[str, Json]]:
        """A page of what done tasks brought: their ids, and what was more than nothing."""
        return self._db.read(lambda s: summary.results(s, batch, after, limit))

    # Plans

    def proposing(self, batch: str, after: str, limit: int) -> list[Proposals]:
        """Done tasks that propose something and have a say: nobody has yet to decide on them."""
        return self._db.read(lambda s: actions.proposing(s, batch, after, limit))

    def held_back(self, batch: str) -> dict[str, int]:
        return self._db.read(lambda s: actions.held_back(s, batch))

    def actions(self, batch: str) -> list[Action]:
        return self._db.read(lambda s: actions.every(s, batch))

    def approve_actions(
        self,
        batch: str,
        new: Sequence[tuple[str, str, dict[str, Any]]],
        text: str,
        actor: str,
        now: int | None = None,
        after: int | None = None,
    ) -> list[Action]:
        at = self._at(now)
        return self._write(lambda s: actions.approve(s, batch, new, text, actor, at, after))

    def move_action(
        self,
        action: Action,
        state: str,
        reason: str | None,
        receipt: str,
        actor: str,
        now: int | None = None,
    ) -> Action:
        at = self._at(now)
        return self._write(lambda s: actions.move(s, action, state, reason, receipt, actor, at))

    def apply_task(
        self, action: Action, new: NewTask, receipt: str, actor: str, now: int | None = None
    ) -> Action:
        at = self._at(now)
        for later in range(20):
            try:
                return self._write(
                    partial(
                        actions.add_task,
                        book=self._book,
                        action=action,
                        new=new,
                        receipt=receipt,
                        actor=actor,
                        now=at + later,
                    )
                )
            except Conflict:  # as in `add`
                continue
        raise StoreUnavailable("no free id could be found; nothing was added. Try again.")

    def undo_task(self, action: Action, receipt: str, actor: str, now: int | None = None) -> Action:
        at = self._at(now)
        return self._write(lambda s: actions.cancel_task(s, self._book, action, receipt, actor, at))
