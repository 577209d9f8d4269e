"""What batches need of the store that a person reviews: chunks, plans' actions, the summary."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from hypervisor.domain.action import Action, Proposals
from hypervisor.domain.chunk import Chunk
from hypervisor.domain.report import Totals
from hypervisor.domain.run import TaskReport
from hypervisor.domain.task import Json, NewTask, Task


class ReviewStore(Protocol):
    def declare_chunks(self, batch: str, names: Sequence[str], gate: str) -> list[Chunk]: ...
    def chunks(self, batch: str) -> list[Chunk]: ...
    def chunk_tasks(self, batch: str, number: int) -> list[Task]: ...
    def chunk_report(self, batch: str, number: int, now: int | None = None) -> list[TaskReport]: ...
    def batches_with_open_chunks(self) -> list[str]: ...
    def amend(
        self, task: str, result: Json, said: str, actor: str, now: int | None = None
    ) -> None: ...
    def decide_chunk(
        self, batch: str, number: int, decision: str, note: str, opens: Collection[int],
        actor: str, now: int | None = None, in_advance: bool = False,
    ) -> list[int]: ...  # fmt: skip
    def retry_chunk(
        self, batch: str, number: int, tasks: Sequence[str], note: str, actor: str,
        now: int | None = None,
    ) -> int: ...  # fmt: skip

    def totals(self, batch: str, now: int | None = None) -> Totals: ...
    def any_running(self, batch: str) -> bool: ...
    def changed_among(self, tasks: Sequence[str], since: int) -> int: ...
    def results(self, batch: str, after: str, limit: int) -> list[tuple[str, Json]]: ...

    def proposing(self, batch: str, after: str, limit: int) -> list[Proposals]: ...
    def held_back(self, batch: str) -> dict[str, int]: ...
    def actions(self, batch: str) -> list[Action]: ...
    def approve_actions(
        self, batch: str, new: Sequence[tuple[str, str, dict[str, Any]]], text: str, actor: str,
        now: int | None = None,
    ) -> list[Action]: ...  # fmt: skip
    def move_action(
        self, action: Action, state: str, reason: str | None, receipt: str, actor: str,
        now: int | None = None,
    ) -> Action: ...  # fmt: skip
    def apply_task(
        self, action: Action, new: NewTask, receipt: str, actor: str, now: int | None = None
    ) -> Action: ...
    def undo_task(
        self, action: Action, receipt: str, actor: str, now: int | None = None
    ) -> Action: ...
