"""What the hive needs of the ledger: branches, findings, and looking for them.

Few commands need any of it: what it takes is imported when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.store.ledger_core import LedgerCore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypervisor.hive.finding import Branch, BranchReport, Known, NewFinding, Remembered, Wanted
    from hypervisor.queue.lease import Token


class HiveLedger(LedgerCore):
    def remember(
        self,
        new: NewFinding,
        actor: str,
        token: Token | None = None,
        task: str = "",
        now: int | None = None,
    ) -> Remembered:
        """Keep a finding: of a claim, of a task, or of a branch alone. A claim or a task brings
        its branch along."""
        from hypervisor.hive.sql import findings

        at = self._at(now)
        ready = findings.prepared(new)
        return self._write(lambda s: findings.remember(s, ready, actor, token, task, at))

    def forget(self, finding: str, actor: str, now: int | None = None) -> str:
        from hypervisor.hive.sql import findings

        at = self._at(now)
        return self._write(lambda s: findings.forget(s, finding, actor, at))

    def recall(self, wanted: Wanted, limit: int) -> list[Known]:
        from hypervisor.hive.sql import search

        return self._db.read(lambda s: search.recall(s, wanted, limit))

    def joined(self, finding: str) -> list[Known]:
        """The finding and all that joined it, oldest first."""
        from hypervisor.hive.sql import search

        return self._db.read(lambda s: search.joined(s, finding))

    def reports(self, branches: Sequence[Branch], limit: int) -> list[BranchReport]:
        from hypervisor.hive.sql import search

        return self._db.read(lambda s: search.reports(s, branches, limit))

    def branches(self) -> list[Branch]:
        from hypervisor.hive.sql import branches as branching

        return self._db.read(branching.branches)

    def set_branch(
        self, name: str, parent: str | None, git: str | None, actor: str, now: int | None = None
    ) -> Branch:
        from hypervisor.hive.sql import branches as branching

        at = self._at(now)
        return self._write(lambda s: branching.set_branch(s, name, parent, git, actor, at))
