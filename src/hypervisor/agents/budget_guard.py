"""May an agent be started now? Not while its account rests, nor once a budget is used up."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

from hypervisor.agents.budget import limits, near, over, task_limits, uncounted
from hypervisor.agents.rate_limit import next_brake
from hypervisor.agents.sql import cooldowns, sessions
from hypervisor.agents.stream_state import StreamError
from hypervisor.queue.sql import event_log, queries
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import BATCH, Pause, RunSpec
from hypervisor.store import settings as store_settings

if TYPE_CHECKING:
    from hypervisor.agents.cooldown import Cooldown
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
        if self._store.write(
            runs_sql.pause, Pause(BATCH, self._batch, why[:500], self._actor, 0), self._store.now()
        ):
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
        key = f"{self._spec.budget} {self._spec.tokens}"  # a raised budget is warned of anew
        if (
            self._store.read(store_settings.setting, name) != key
        ):  # one small query is enough nearly always
            self._store.write(
                runs_sql.note_once,
                (name, key),
                "budget",
                {"said": text},
                self._actor,
                batch=self._batch,
                now=self._store.now(),
            )


class RateLimitGuard:
    """The rest of accounts, as one worker sees and causes it."""

    def __init__(self, store: Database, account: str, actor: str) -> None:
        self._store, self._account, self._actor = store, account, actor

    def resting(self, account: str) -> bool:
        brake = self._of(account)
        return brake is not None and brake.until > self._store.now()

    def apply(self, trouble: StreamError, seed: str = "") -> Cooldown:
        """After a limit or an outage: nobody asks that account again for a while."""
        brake = next_brake(
            self._of(self._account), self._account, trouble, self._store.now(), _here(), seed
        )
        self._store.write(cooldowns.set_brake, brake, self._actor, self._store.now())
        return brake

    def relieve(self) -> None:
        """An answer came: what is left of a rest that is over need not be remembered."""
        brake = self._of(self._account)
        if brake is not None and brake.until <= self._store.now():
            self._store.write(
                cooldowns.lift_brake, self._account, self._actor, self._store.now(), True
            )

    def _of(self, account: str) -> Cooldown | None:
        return next(
            (each for each in self._store.read(cooldowns.brakes) if each.account == account), None
        )


def _here() -> tzinfo:
    """Programs tell the time of a reset by the clock on the wall."""
    return datetime.now().astimezone().tzinfo or UTC
