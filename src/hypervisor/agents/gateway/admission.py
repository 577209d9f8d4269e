"""Whether a call may be made: the claim, the cooldown of the account, the budgets. Pure rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from hypervisor.agents.budget import Limit, over
from hypervisor.agents.cooldown import Cooldown, cooldown_text
from hypervisor.agents.sql.spending import Spender
from hypervisor.agents.watch import LAST_WORDS
from hypervisor.core.records import NamedTuple

# Why a call was refused: its claim has ended, a budget is used up, or the account is cooling down.
RefusalKind = Literal["claim", "task", "batch", "day", "quota", "overload", "request"]
HOLD_MS = 15_000  # how long a call waits for the end of a cooldown
IN_FLIGHT_PAUSE = 0.05  # seconds until a call that waits for another is considered again
GIVEN_TIME = ("done", "blocked")  # after these an agent may finish its last message


class Refusal(NamedTuple):
    """A refused call. `reason` is shown to people, and to the agent."""

    kind: RefusalKind
    reason: str


class Wait(NamedTuple):
    """The call is not refused, but has to wait."""

    seconds: float


class InFlight(NamedTuple):
    """The calls of a session that have not been answered yet, and the largest answered one."""

    calls: int = 0
    tokens: int | None = None
    cost_micros: int = 0


def check_claim(spender: Spender, worker_lives: bool, now: int) -> Refusal | None:
    """A session may spend while it is open, its claim is live and its worker exists."""
    if not worker_lives:
        return Refusal("claim", "the worker of this attempt is gone")
    if spender.ended_at is not None:
        return Refusal("claim", "this attempt has ended")
    if not spender.task or spender.outcome is None:
        return None
    ended = spender.claim_ended_at or 0
    if spender.outcome in GIVEN_TIME and now - ended <= LAST_WORDS * 1000:
        return None
    return Refusal("claim", f"this attempt has ended ({spender.outcome})")


def check_cooldown(cooldown: Cooldown | None, now: int) -> Refusal | Wait | None:
    """A short cooldown is waited for."""
    if cooldown is None or cooldown.until <= now:
        return None
    if cooldown.until - now <= HOLD_MS:
        return Wait((cooldown.until - now) / 1000)
    return Refusal("overload" if cooldown.is_outage else "quota", cooldown_text(cooldown, now))


def check_budgets(
    limits: Iterable[tuple[RefusalKind, list[Limit]]], in_flight: InFlight
) -> Refusal | Wait | None:
    """Calls in flight are not counted yet: another one waits if they could use up the rest."""
    waits = False
    for kind, of_kind in limits:
        if reason := over(of_kind):
            return Refusal(kind, reason)
        waits = waits or any(_may_use_up(limit, in_flight) for limit in of_kind)
    return Wait(IN_FLIGHT_PAUSE) if waits else None


def _may_use_up(limit: Limit, in_flight: InFlight) -> bool:
    if not in_flight.calls:
        return False
    if in_flight.tokens is None:  # how large they may be is unknown
        return True
    largest = in_flight.cost_micros if limit.is_money else in_flight.tokens
    return limit.used + in_flight.calls * largest >= limit.limit
