"""What batches need of the store that a person reviews: chunks, plans' actions, the summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from hypervisor.batches.chunk import Chunk
from hypervisor.batches.plans.action import Action, Proposals
from hypervisor.queue.history import Totals
from hypervisor.queue.task import Json, NewTask, Task
from hypervisor.runs.spec import TaskReport


class ReviewStore(Protocol):
    def declare_chunks(self, batch: str, names: Sequence[str], gate: str) -> list[Chunk]: ...
    def chunks(self, batch: str) -> list[Chunk]: ...
    def chunk_tasks(self, batch: str, number: int) -> list[Task]: ...
    def chunk_report(self, batch: str, number: int, now: int | None = None) -> list[TaskReport]: ...
    def batches_with_open_chunks(self) -> list[str]: ...
    def amend(
        self, task: str, changes: dict[str, Any], actor: str, now: int | None = None
    ) -> Json: ...
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
    ) -> list[int]: ...
    def retry_chunk(
        self,
        batch: str,
        number: int,
        tasks: Sequence[str],
        note: str,
        actor: str,
        now: int | None = None,
    ) -> int: ...

    def totals(self, batch: str, now: int | None = None) -> Totals: ...
    def any_running(self, batch: str) -> bool: ...
    def changed_among(self, tasks: Sequence[str], since: int) -> int: ...
    def results(self, batch: str, after: str, limit: int) -> list[tuple[str, Json]]: ...

    def proposing(self, batch: str, after: str, limit: int) -> list[Proposals]: ...
    def held_back(self, batch: str) -> dict[str, int]: ...
    def actions(self, batch: str) -> list[Action]: ...
    def approve_actions(
        self,
        batch: str,
        new: Sequence[tuple[str, str, dict[str, Any]]],
        text: str,
        actor: str,
        now: int | None = None,
        after: int | None = None,
    ) -> list[Action]: ...
    def move_action(
        self,
        action: Action,
        state: str,
        reason: str | None,
        receipt: str,
        actor: str,
        now: int | None = None,
    ) -> Action: ...
    def apply_task(
        self, action: Action, new: NewTask, receipt: str, actor: str, now: int | None = None
    ) -> Action: ...
    def undo_task(
        self, action: Action, receipt: str, actor: str, now: int | None = None
    ) -> Action: ...
