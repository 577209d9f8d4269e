"""What batches need that a person reviews: chunks, the actions of their plans, the summary."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from hypervisor.domain.action import Action, Proposals
from hypervisor.domain.chunk import Chunk
from hypervisor.domain.errors import StoreUnavailable
from hypervisor.domain.report import Totals
from hypervisor.domain.run import TaskReport
from hypervisor.domain.task import Json, NewTask, Task
from hypervisor.store import actions, chunking, reading, running, summing
from hypervisor.store.ledger_core import LedgerCore
from hypervisor.store.session import Conflict, Session


class ReviewLedger(LedgerCore):
    # Chunks

    def declare_chunks(self, batch: str, names: Sequence[str], gate: str) -> list[Chunk]:
        return self._write(lambda s: chunking.declare(s, batch, names, gate))

    def chunks(self, batch: str) -> list[Chunk]:
        return self._db.read(lambda s: chunking.every(s, batch))

    def chunk_tasks(self, batch: str, number: int) -> list[Task]:
        def read(session: Session) -> list[Task]:
            found = chunking.tasks(session, batch, number)
            return reading.tasks(session, self._book, found) if found else []

        return self._db.read(read)

    def chunk_report(self, batch: str, number: int, now: int | None = None) -> list[TaskReport]:
        at = self._at(now)
        return self._db.read(lambda s: running.report_chunk(s, batch, number, at))

    def batches_with_open_chunks(self) -> list[str]:
        return self._db.read(chunking.batches_with_open)

    def amend(self, task: str, result: Json, said: str, actor: str, now: int | None = None) -> None:
        at = self._at(now)
        self._write(lambda s: chunking.amend(s, task, result, said, actor, at))

    def decide_chunk(
        self, batch: str, number: int, decision: str, note: str, opens: Collection[int],
        actor: str, now: int | None = None, in_advance: bool = False,
    ) -> list[int]:  # fmt: skip
        at = self._at(now)
        return self._write(
            lambda s: chunking.decide(
                s, self._book, batch, number, decision, note, opens, in_advance, actor, at
            )
        )

    def retry_chunk(
        self, batch: str, number: int, tasks: Sequence[str], note: str, actor: str,
        now: int | None = None,
    ) -> int:  # fmt: skip
        """Put tasks of a chunk back into the queue with a note for whoever works on them."""
        at = self._at(now)
        return self._write(
            lambda s: chunking.retry(s, self._book, batch, number, tasks, note, actor, at)
        )

    # The summary

    def totals(self, batch: str, now: int | None = None) -> Totals:
        at = self._at(now)
        return self._db.read(lambda s: summing.totals(s, batch, at))

    def any_running(self, batch: str) -> bool:
        """Whether anything of a batch is in progress: a quick look."""
        return self._db.read(lambda s: summing.any_running(s, batch))

    def changed_among(self, tasks: Sequence[str], since: int) -> int:
        return self._db.read(lambda s: summing.changed_among(s, tasks, since)) if tasks else 0

    def results(self, batch: str, after: str, limit: int) -> list[tuple[str, Json]]:
        """A page of what done tasks brought: their ids, and what was more than nothing."""
        return self._db.read(lambda s: summing.results(s, batch, after, limit))

    # Plans

    def proposing(self, batch: str, after: str, limit: int) -> list[Proposals]:
        """Done tasks that propose something and have a say: nobody has yet to decide on them."""
        return self._db.read(lambda s: actions.proposing(s, batch, after, limit))

    def held_back(self, batch: str) -> dict[str, int]:
        return self._db.read(lambda s: actions.held_back(s, batch))

    def actions(self, batch: str) -> list[Action]:
        return self._db.read(lambda s: actions.every(s, batch))

    def approve_actions(
        self, batch: str, new: Sequence[tuple[str, str, dict[str, Any]]], text: str, actor: str,
        now: int | None = None,
    ) -> list[Action]:  # fmt: skip
        at = self._at(now)
        return self._write(lambda s: actions.approve(s, batch, new, text, actor, at))

    def move_action(
        self, action: Action, state: str, reason: str | None, receipt: str, actor: str,
        now: int | None = None,
    ) -> Action:  # fmt: skip
        at = self._at(now)
        return self._write(lambda s: actions.move(s, action, state, reason, receipt, actor, at))

    def apply_task(
        self, action: Action, new: NewTask, receipt: str, actor: str, now: int | None = None
    ) -> Action:
        at = self._at(now)
        for later in range(20):
            try:
                return self._write(
                    partial(actions.add_task, book=self._book, action=action, new=new,
                            receipt=receipt, actor=actor, now=at + later)
                )  # fmt: skip
            except Conflict:  # as in `add`
                continue
        raise StoreUnavailable("no free id could be found; nothing was added. Try again.")

    def undo_task(self, action: Action, receipt: str, actor: str, now: int | None = None) -> Action:
        at = self._at(now)
        return self._write(lambda s: actions.cancel_task(s, self._book, action, receipt, actor, at))
