"""Rate limits: the cooldowns of accounts, as people and workers see and change them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hypervisor.agents.cooldown import Cooldown, next_cooldown
from hypervisor.agents.running_status import cooling_down
from hypervisor.agents.sql import cooldowns
from hypervisor.agents.stream_state import StreamError
from hypervisor.core import validate
from hypervisor.queue.context import Context

if TYPE_CHECKING:
    from hypervisor.store.database import Database


def brakes(hv: Context, now: int | None = None) -> tuple[Cooldown, ...]:
    """List the accounts of agents that are rate-limited, until when and why."""
    return cooling_down(hv, hv.now() if now is None else now)


def lift_brake(hv: Context, account: str, now: int | None = None) -> bool:
    """End the cooldown of an account, so that its agents go on; False if there was none."""
    return hv.store.write(
        cooldowns.lift_brake, validate.name("the account", account), hv.actor, hv.at(now), False
    )


class CooldownGuard:
    """Cooldowns of accounts, as one worker sees and causes them."""

    def __init__(self, store: Database, account: str, actor: str) -> None:
        self._store, self._account, self._actor = store, account, actor

    def is_cooling(self, account: str) -> bool:
        cooldown = self._of(account)
        return cooldown is not None and cooldown.until > self._store.now()

    def start(self, error: StreamError, seed: str = "") -> Cooldown:
        """After a limit or an outage. Programs tell the time of a reset in local time."""
        before, here = self._of(self._account), datetime.now().astimezone().tzinfo or UTC
        cooldown = next_cooldown(
            before, self._account, error, self._store.now(), tz=here, seed=seed
        )
        self._store.write(cooldowns.set_brake, cooldown, self._actor, self._store.now())
        return cooldown

    def end(self) -> None:
        """An answer came: a cooldown whose time is over need not be remembered."""
        cooldown = self._of(self._account)
        if cooldown is not None and cooldown.until <= self._store.now():
            self._store.write(
                cooldowns.lift_brake, self._account, self._actor, self._store.now(), True
            )

    def _of(self, account: str) -> Cooldown | None:
        return next(
            (each for each in self._store.read(cooldowns.brakes) if each.account == account), None
        )
