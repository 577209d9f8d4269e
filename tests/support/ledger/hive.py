"""Findings and branches."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.hive.branch import Branch
from hypervisor.hive.branch_report import BranchReport
from hypervisor.hive.finding import Known, NewFinding, Query, Remembered
from hypervisor.queue.lease import Token
from tests.support.ledger.base import LedgerBase


class HiveLedger(LedgerBase):
    def remember(
        self,
        new: NewFinding,
        actor: str,
        token: Token | None = None,
        task: str = "",
        now: int | None = None,
    ) -> Remembered:
        from hypervisor.hive.sql import findings

        at = self._at(now)
        ready = findings.prepare(new)
        source = token or (findings.OfTask(task, actor) if task else findings.OfActor(actor))
        return self._write(lambda s: findings.remember(s, ready, source, at))

    def forget(self, finding: str, actor: str, now: int | None = None) -> str:
        from hypervisor.hive.sql import findings

        at = self._at(now)
        return self._write(lambda s: findings.forget(s, finding, actor, at))

    def recall(self, wanted: Query, limit: int) -> list[Known]:
        from hypervisor.hive.sql import search

        return self._db.read(lambda s: search.recall(s, wanted, limit))

    def joined(self, finding: str) -> list[Known]:
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
        return self._write(
            lambda s: branching.set_branch(s, name, parent, git, actor=actor, now=at)
        )
