"""Brakes: accounts of agents that rest after a limit of their provider."""

from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.running_status import resting
from hypervisor.agents.sql import cooldowns
from hypervisor.core import validate
from hypervisor.queue.context import Context


def brakes(hv: Context, now: int | None = None) -> tuple[Cooldown, ...]:
    """List the accounts of agents that rest, until when and why."""
    return resting(hv, hv.now() if now is None else now)


def lift_brake(hv: Context, account: str, now: int | None = None) -> bool:
    """End the rest of an account, so that its agents go on at once; False if it did not rest."""
    return hv.store.write(
        cooldowns.lift_brake, validate.name("the account", account), hv.actor, hv.at(now), False
    )
