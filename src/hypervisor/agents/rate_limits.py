"""Rate limits: listing, starting and ending the cooldowns of accounts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hypervisor.agents.cooldown import Cooldown, next_cooldown
from hypervisor.agents.sql import cooldowns as cooldowns_sql
from hypervisor.agents.stream_state import StreamError
from hypervisor.core import validate
from hypervisor.queue.context import Context

if TYPE_CHECKING:
    from hypervisor.store.database import Database


def cooldowns(hv: Context, now: int | None = None) -> tuple[Cooldown, ...]:
    """List the rate-limited accounts of agents, with the time and the reason."""
    from hypervisor.agents.running_status import cooling_down  # the gateway needs no status

    return cooling_down(hv, hv.now() if now is None else now)


def end_cooldown(hv: Context, account: str, now: int | None = None) -> bool:
    """End the cooldown of an account, so that its agents continue; False if there was none."""
    return hv.store.write(
        cooldowns_sql.end_cooldown,
        validate.name("the account", account),
        hv.actor,
        hv.at(now),
        False,
    )


class CooldownGuard:
    """Checks, starts and ends cooldowns in a worker."""

    def __init__(self, store: Database, account: str, actor: str) -> None:
        self._store, self._account, self._actor = store, account, actor

    def is_cooling(self, account: str) -> bool:
        cooldown = self._of(account)
        return cooldown is not None and cooldown.until > self._store.now()

    def start(self, error: StreamError, seed: str = "") -> Cooldown:
        """After a limit or an outage. Programs print reset times in local time."""
        before, here = self._of(self._account), datetime.now().astimezone().tzinfo or UTC
        cooldown = next_cooldown(
            before, self._account, error, self._store.now(), tz=here, seed=seed
        )
        self._store.write(cooldowns_sql.start_cooldown, cooldown, self._actor, self._store.now())
        return cooldown

    def end(self) -> None:
        """The provider has answered: remove an expired cooldown."""
        cooldown = self._of(self._account)
        if cooldown is not None and cooldown.until <= self._store.now():
            self._store.write(
                cooldowns_sql.end_cooldown, self._account, self._actor, self._store.now(), True
            )

    def _of(self, account: str) -> Cooldown | None:
        return next(
            (
                cooldown
                for cooldown in self._store.read(cooldowns_sql.every)
                if cooldown.account == account
            ),
            None,
        )
