"""Enforces budgets in a worker: whether an agent may start or must stop."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.agents.budget import (
    batch_limits,
    day_limits,
    near,
    over,
    task_limits,
    uncounted,
)
from hypervisor.agents.sql import budget_warnings
from hypervisor.core.errors import StoreError
from hypervisor.queue.pause import BATCH, Pause
from hypervisor.queue.sql import agent_sessions, event_log, queries
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.runs.spec import AgentSpec

if TYPE_CHECKING:
    from hypervisor.agents.agent_settings import AgentSettings
    from hypervisor.queue.agent_session import Spent
    from hypervisor.store.database import Database

DAY = 86_400_000
OPEN = ("waiting", "active")


class BudgetGuard:
    def __init__(
        self, store: Database, batch: str, spec: AgentSpec, settings: AgentSettings, actor: str
    ) -> None:
        self._store, self._batch, self._spec = store, batch, spec
        self._settings, self._actor = settings, actor
        self.is_closed = False
        self._has_limits = any(
            limit is not None
            for limit in (spec.budget, spec.tokens, settings.day_budget, settings.day_tokens)
        )

    def is_empty(self) -> bool:
        """Whether nothing more may be started; if so, the batch is paused."""
        if not self._has_limits:
            return False
        spent, settings = self._store.read(agent_sessions.spent, self._batch), self._settings
        limits = [
            *batch_limits(spent, self._spec),
            *day_limits(self._day(), settings.day_budget, settings.day_tokens),
        ]
        reason = over(limits)
        if reason is not None:
            self.is_closed = True
            self._close(reason)
            return True
        if warning := near(limits) or uncounted(spent, self._spec):
            self._warn(warning)
        return False

    def over_task(self, task: str) -> str | None:
        """Why the agent that works on a task must stop; None if it need not."""
        if self._spec.task_budget is None and self._spec.task_tokens is None:
            return None
        return over(task_limits(self._store.read(agent_sessions.spent, task=task), self._spec))

    def left_for(self, task: str) -> int | None:
        """The money that may still be spent on a task; None: no limit."""
        if self._spec.task_budget is None:
            return None
        return max(
            self._spec.task_budget - self._store.read(agent_sessions.spent, task=task).cost_micros,
            1,
        )

    def _close(self, reason: str) -> None:
        """Pause the batch, unless it has no open tasks."""
        states = self._store.read(queries.stats, self._batch, self._store.now(), False).states
        if not any(states.get(state) for state in OPEN):
            return
        pause = Pause(BATCH, self._batch, reason[:500], self._actor, 0)
        if self._store.write(pauses_sql.pause, pause, self._store.now()):
            with suppress(StoreError):  # the pause itself says why
                self._store.write_unsynced(
                    event_log.note,
                    "budget",
                    {"message": reason},
                    self._actor,
                    self._store.now(),
                    batch=self._batch,
                )

    def _day(self) -> Spent:
        now = self._store.now()
        return self._store.read(agent_sessions.spent, since=now - now % DAY)

    def _warn(self, text: str) -> None:
        budget = f"{self._spec.budget} {self._spec.tokens}"  # a raised one gets its own warning
        if self._store.read(budget_warnings.warned_budget, self._batch) != budget:
            now = self._store.now()
            self._store.write(budget_warnings.warn, self._batch, budget, text, self._actor, now=now)
