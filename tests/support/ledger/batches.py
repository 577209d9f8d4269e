"""Chunks, pipelines, proposed actions and reports of batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypervisor.batches.chunk import Chunk, ChunkState
from hypervisor.batches.plans.action import Action, ActionState, Proposals
from hypervisor.batches.sql import actions, pipelines, summary
from hypervisor.batches.sql import chunks as chunking
from hypervisor.batches.sql import report as reporting
from hypervisor.queue.add import with_fresh_ids
from hypervisor.queue.history import AttemptLine, Experience, Totals
from hypervisor.queue.lease import Token
from hypervisor.queue.receipt import Receipt
from hypervisor.queue.task import Json, NewTask, Task
from hypervisor.runs import sql
from hypervisor.runs.spec import Gate, TaskReport
from tests.support.ledger.base import LedgerBase


class BatchesLedger(LedgerBase):
    def declare_chunks(self, batch: str, names: Sequence[str], gate: Gate) -> list[Chunk]:
        return self._write(lambda s: chunking.declare(s, batch, names, gate))

    def chunks(self, batch: str) -> list[Chunk]:
        return self._db.read(lambda s: chunking.every(s, batch))

    def chunk_tasks(self, batch: str, number: int) -> list[Task]:
        return self._db.read(chunking.chunk_tasks, batch, number)

    def chunk_report(self, batch: str, number: int, now: int | None = None) -> list[TaskReport]:
        at = self._at(now)
        return self._db.read(lambda s: sql.report_chunk(s, batch, number, at))

    def batches_with_open_chunks(self) -> list[str]:
        return self._db.read(chunking.batches_with_open)

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
        return self._db.write(
            chunking.decide,
            batch,
            number,
            ChunkState(decision),
            note=note,
            in_advance=in_advance,
            may_change=may_change,
            actor=actor,
            now=at,
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
        at = self._at(now)
        return self._db.write(chunking.retry, batch, number, tasks, note, actor=actor, now=at)

    def totals(self, batch: str, now: int | None = None) -> Totals:
        at = self._at(now)
        return self._db.read(lambda s: summary.totals(s, batch, at))

    def results(self, batch: str, after: str, limit: int) -> list[tuple[str, Json]]:
        return self._db.read(lambda s: summary.results(s, batch, after, limit))

    def proposing(self, batch: str, after: str, limit: int, chunk: int = 0) -> list[Proposals]:
        return self._db.read(lambda s: actions.proposing(s, batch, after, limit, chunk))

    def held_back(self, batch: str, chunk: int = 0) -> dict[str, int]:
        return self._db.read(lambda s: actions.held_back(s, batch, chunk))

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
        options: Any = {"actor": actor, "now": at, "after": after}
        return self._db.write(actions.approve, batch, new, text, **options)

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
        more: Any = {"reason": reason, "receipt": receipt, "actor": actor, "now": at}
        return self._db.write(actions.move, action, ActionState(state), **more)

    def apply_task(
        self, action: Action, new: NewTask, receipt: str, actor: str, now: int | None = None
    ) -> Action:
        return with_fresh_ids(
            lambda at: self._db.write(actions.add_task, action, new, receipt, actor=actor, now=at),
            self._at(now),
        )

    def undo_task(self, action: Action, receipt: str, actor: str, now: int | None = None) -> Action:
        at = self._at(now)
        return self._write(lambda s: actions.cancel_task(s, action, receipt, actor, at))

    def reduce_input(self, task: str) -> str | None:
        return self._db.read(pipelines.reduce_input, task)

    def set_reduce_input(self, token: Token, digest: str) -> bool:
        return self._db.write(pipelines.set_reduce_input_under_claim, token, digest)

    def states_of_keys(self, batch: str, digests: Sequence[str]) -> dict[str, str]:
        return self._db.read(lambda s: reporting.states_of_keys(s, batch, digests))

    def attempts_of_batch(
        self, batch: str, after: str, tasks: int
    ) -> tuple[str, list[AttemptLine]]:
        return self._db.read(lambda s: reporting.attempts(s, batch, after, tasks))

    def experience(self, kind: str, batch: str | None) -> Experience:
        return self._db.read(lambda s: reporting.experience(s, kind, batch))

    def last_receipts(self, chain: str, limit: int) -> tuple[int, list[Receipt]]:
        return self._db.read(lambda s: reporting.last_receipts(s, chain, limit))

    def noted(self, kind: str, batch: str, since: int) -> dict[str, Any]:
        return self._db.read(lambda s: reporting.noted(s, kind, batch, since))
