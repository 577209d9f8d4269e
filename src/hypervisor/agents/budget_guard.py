"""Budgets, as one worker sees them: may an agent be started, must one stop?"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.agents.budget import limits, near, over, task_limits, uncounted
from hypervisor.agents.sql import sessions
from hypervisor.core.errors import StoreError
from hypervisor.queue.sql import event_log, queries
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import BATCH, Pause, RunSpec
from hypervisor.store import settings as store_settings

if TYPE_CHECKING:
    from hypervisor.agents.session import Spent
    from hypervisor.runs.config import Settings
    from hypervisor.store.database import Database

DAY = 86_400_000
OPEN = ("waiting", "active")


class BudgetGuard:
    def __init__(
        self, store: Database, batch: str, spec: RunSpec, settings: Settings, actor: str
    ) -> None:
        self._store, self._batch, self._spec = store, batch, spec
        self._settings, self._actor = settings, actor
        self.is_closed = False
        self._has_limits = any(
            each is not None
            for each in (spec.budget, spec.tokens, settings.day_budget, settings.day_tokens)
        )

    def is_empty(self) -> bool:
        """Whether nothing more may be started; the batch then waits, and says why."""
        if not self._has_limits:
            return False
        spent, settings = self._store.read(sessions.spent, self._batch), self._settings
        found = limits(spent, self._spec, self._day(), settings.day_budget, settings.day_tokens)
        why = over(found)
        if why is not None:
            self.is_closed = True
            self._close(why)
            return True
        if warning := near(found) or uncounted(spent, self._spec):
            self._warn(warning)
        return False

    def over_task(self, task: str) -> str | None:
        """Why the agent at work on a task must stop."""
        if self._spec.task_budget is None and self._spec.task_tokens is None:
            return None
        return over(task_limits(self._store.read(sessions.spent, task=task), self._spec))

    def left_for(self, task: str) -> int | None:
        """The money that one agent may spend on a task, None where nobody said."""
        if self._spec.task_budget is None:
            return None
        return max(
            self._spec.task_budget - self._store.read(sessions.spent, task=task).cost_micros, 1
        )

    def _close(self, why: str) -> None:
        """Nobody claims any more, unless there is nothing left that could be claimed."""
        states = self._store.read(queries.stats, self._batch, self._store.now(), False).states
        if not any(states.get(state) for state in OPEN):
            return
        pause = Pause(BATCH, self._batch, why[:500], self._actor, 0)
        if self._store.write(runs_sql.pause, pause, self._store.now()):
            with suppress(StoreError):  # the pause itself says why
                self._store.write_unsynced(
                    event_log.note,
                    "budget",
                    {"said": why},
                    self._actor,
                    self._store.now(),
                    batch=self._batch,
                )

    def _day(self) -> Spent:
        now = self._store.now()
        return self._store.read(sessions.spent, since=now - now % DAY)

    def _warn(self, text: str) -> None:
        name = f"budget warned {self._batch}"
        key = f"{self._spec.budget} {self._spec.tokens}"  # a raised budget gets its own warning
        # one small query is enough nearly always
        if self._store.read(store_settings.setting, name) != key:
            self._store.write(
                runs_sql.note_once,
                (name, key),
                "budget",
                {"said": text},
                self._actor,
                batch=self._batch,
                now=self._store.now(),
            )
