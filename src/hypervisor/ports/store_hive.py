"""What the hive needs of the store: branches, findings, and looking for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hypervisor.hive.finding import Branch, BranchReport, Known, NewFinding, Remembered, Wanted
from hypervisor.queue.lease import Token


class HiveStore(Protocol):
    def remember(
        self,
        new: NewFinding,
        actor: str,
        token: Token | None = None,
        task: str = "",
        now: int | None = None,
    ) -> Remembered: ...
    def forget(self, finding: str, actor: str, now: int | None = None) -> str: ...
    def recall(self, wanted: Wanted, limit: int) -> list[Known]: ...
    def joined(self, finding: str) -> list[Known]: ...
    def reports(self, branches: Sequence[Branch], limit: int) -> list[BranchReport]: ...
    def branches(self) -> list[Branch]: ...
    def set_branch(
        self, name: str, parent: str | None, git: str | None, actor: str, now: int | None = None
    ) -> Branch: ...
