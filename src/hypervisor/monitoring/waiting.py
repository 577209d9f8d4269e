"""Why nothing starts, in one sentence, and until when.

The sentence is built again whenever it is shown, so that it counts down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.core.times import clock_text
from hypervisor.queue.lifecycle import ACTIVE, WAITING
from hypervisor.queue.pause import Pause
from hypervisor.queue.task import Delay
from hypervisor.resources.limits import span_text

if TYPE_CHECKING:
    from hypervisor.agents.cooldown import Cooldown
    from hypervisor.monitoring.status import Status

WaitKind = Literal[
    "disk",
    "pause",
    "rate_limit",
    "checkpoint",
    "load",
    "time",
    "dependencies",
    "requirements",
    "hosts",
]
SOON = 600_000  # milliseconds; a nearer start is shown as a countdown
HELD_BACK = ("nothing new is started: ", "0 of ")  # the beginning of the governor's sentence


class Waiting(NamedTuple):
    """Why nothing starts although there are open tasks."""

    kind: WaitKind
    reason: str
    next_at: int | None = None  # when the next task may start, if known
    delays: tuple[Delay, ...] = ()


def why_waiting(status: Status, delays: Sequence[Delay], now: int) -> Waiting | None:
    """Why no task of a status starts; None if tasks can start."""
    ready, waiting = status.stats.states[ACTIVE], status.stats.states[WAITING]
    if not ready and not (waiting and not status.stats.claimed):
        return None
    return (
        _by_pause_or_limit(status, now)
        or (by_load(status) if ready else None)
        or (None if ready else _by_time_or_dependencies(delays, waiting, now))
        or by_requirements(status, ready)
    )


def waiting_text(waiting: Waiting, now: int) -> str:
    """`waiting: 3 tasks retry in 12 s`."""
    reason = delays_text(waiting.delays, now) if waiting.delays else waiting.reason
    return reason if waiting.kind == "pause" else f"waiting: {reason}"


def delays_text(delays: Sequence[Delay], now: int) -> str:
    """`3 tasks retry in 12 s, 2 tasks start at 17:00`."""
    return ", ".join(_delay_text(delay, now) for delay in delays)


def combined(parts: Sequence[Waiting | None], claimed: int) -> Waiting | None:
    """For the batches of a pipeline: reasons other than dependencies come first."""
    reasons = [part for part in parts if part is not None]
    if claimed:
        reasons = [part for part in reasons if part.kind not in ("time", "dependencies")]
    return next(
        (part for part in reasons if part.kind != "dependencies"), next(iter(reasons), None)
    )


def _by_pause_or_limit(status: Status, now: int) -> Waiting | None:
    if status.trouble:
        return Waiting("disk", status.trouble)
    if status.pauses:
        return Waiting("pause", pause_text(status.pauses[0]))
    if status.cooldowns and not status.stats.claimed:
        from hypervisor.agents.cooldown import cooldown_text

        first: Cooldown = min(status.cooldowns, key=lambda cooldown: cooldown.until)
        return Waiting("rate_limit", cooldown_text(first, now, None), first.until)
    if status.checkpoint is not None and not status.stats.states[ACTIVE]:
        return Waiting("checkpoint", f"{status.checkpoint.label} is waiting for a decision")
    return None


def by_load(status: Status) -> Waiting | None:
    """The load of this host."""
    message = str((status.host or {}).get("message", ""))
    if status.supervisor is None or not message.startswith(HELD_BACK):
        return None
    reason = message.partition(": ")[2]
    return Waiting("load", reason.removesuffix(f" ({(status.host or {}).get('zone')})"))


def _by_time_or_dependencies(delays: Sequence[Delay], waiting: int, now: int) -> Waiting:
    if delays:
        first = min(delay.first_at for delay in delays)
        return Waiting("time", delays_text(delays, now), first, tuple(delays))
    verb = "depends" if waiting == 1 else "depend"
    return Waiting("dependencies", f"{pluralize(waiting, 'task')} {verb} on unfinished tasks")


def by_requirements(status: Status, ready: int) -> Waiting | None:
    """Tasks are ready, but the supervisor starts no worker for them."""
    is_supervised = status.supervisor is not None and status.host is not None
    if status.stats.claimed or not is_supervised or (status.host or {}).get("target"):
        return None
    verb = "requires" if ready == 1 else "require"
    return Waiting(
        "requirements", f"{pluralize(ready, 'task')} {verb} a capability that no worker here has"
    )


def pause_text(pause: Pause) -> str:
    """`paused by ann: lunch`."""
    by = f"paused by {pause.actor}" if pause.actor else "paused"
    return f"{by}: {pause.reason}" if pause.reason else by


def _delay_text(delay: Delay, now: int) -> str:
    tasks = pluralize(delay.tasks, "task")
    remaining = delay.first_at - now
    first = "" if delay.last_at - delay.first_at < 1000 else ", the first"
    singular, plural = ("retries", "retry") if delay.failed_before else ("starts", "start")
    verb = singular if delay.tasks == 1 else plural
    if remaining >= SOON:
        return f"{tasks} {verb}{first} at {clock_text(delay.first_at, now)}"
    return f"{tasks} {verb}{first} in {span_text(-(-max(remaining, 0) // 1000) * 1000)}"
