"""What the learner needs of the ledger. Few commands do: the rest is imported when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.store.ledger_core import LedgerCore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypervisor.queue.history import EndedAttempt


class LearningLedger(LedgerCore):
    def ended_attempts(self, which: Sequence[tuple[str, int]]) -> list[EndedAttempt]:
        """Those of these attempts that have ended, by task and number."""
        from hypervisor.learning import sql

        return self._db.read(lambda s: sql.ended(s, self._book, which)) if which else []

    def settings_like(self, prefix: str) -> dict[str, str]:
        """The settings whose names begin so."""
        from hypervisor.learning import sql

        return self._db.read(lambda s: sql.kept(s, prefix))

    def keep_settings(self, values: Mapping[str, str]) -> None:
        """Set all of these, or none."""
        from hypervisor.learning import sql

        self._write(lambda s: sql.keep(s, values), durable=False)
