"""Pausing and stopping work, and setting the number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, WrongState
from hypervisor.queue import lifecycle
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.pause import ALL, BATCH, TYPE, Pause
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.queue.sql import queries
from hypervisor.queue.sql import stops as stops_sql
from hypervisor.runs import sql
from hypervisor.runs.config_readers import MAX_WORKERS

if TYPE_CHECKING:
    from hypervisor.queue.steer import Moved

MAX_STOPPED = 10_000


def pause(
    hv: Context,
    batch: str | None = None,
    type: str | None = None,
    reason: str = "",
    now: int | None = None,
) -> bool:
    """Pause a batch, a type or everything: no new claims; running attempts finish."""
    validate.text("the reason", reason)
    return hv.store.write(pauses_sql.pause, _scope(hv, batch, type, reason), hv.at(now))


def resume(
    hv: Context, batch: str | None = None, type: str | None = None, now: int | None = None
) -> bool:
    """Resume a batch, a type or everything after a pause."""
    return hv.store.write(pauses_sql.resume, _scope(hv, batch, type, ""), hv.at(now))


def scale(
    hv: Context, workers: int | None, batch: str | None = None, now: int | None = None
) -> None:
    """Set the maximum number of workers of a batch, or of each host."""
    if workers is not None:
        validate.number("the number of workers", workers, 0, MAX_WORKERS)
    hv.store.write(sql.scale, workers, batch_id(hv, batch), hv.actor, hv.at(now))


def kill(
    hv: Context, task: str, reason: str = "", retry: bool = False, now: int | None = None
) -> Moved:
    """Stop a running attempt with all its processes; its task fails or is retried."""
    from hypervisor.queue.steer import Moved

    task_id = hv.resolve(task)
    validate.text("the reason", reason)
    full_reason = f"killed by {hv.actor}" + (f": {reason}" if reason else "")
    if hv.store.write(
        stops_sql.ask_stop,
        task_id,
        "release" if retry else "fail",
        full_reason,
        hv.actor,
        now=hv.at(now),
    ):
        return Moved(task_id, "stopping")
    state = hv.store.read(queries.task, task_id).state
    if state == lifecycle.IN_PROGRESS:
        raise WrongState(
            f"{task_id} was claimed by a worker that Hypervisor did not start. Nothing was "
            f"changed; `hv cancel {task_id}` or `hv release --force {task_id}` ends the claim."
        )
    raise WrongState(f"{task_id} is {state_name(state)}, not running. Nothing was changed.")


def stop_batch(hv: Context, batch: str, reason: str = "", now: int | None = None) -> int:
    """Stop all running attempts of a batch and put their tasks back; returns how many."""
    validate.text("the reason", reason)
    full_reason = f"stopped by {hv.actor}" + (f": {reason}" if reason else "")
    return sum(
        hv.store.write(
            stops_sql.ask_stop, attempt.task, "release", full_reason, hv.actor, now=hv.at(now)
        )
        for attempt in hv.store.read(sql.running, batch_id(hv, batch), MAX_STOPPED)
    )


def _scope(hv: Context, batch: str | None, type: str | None, reason: str) -> Pause:
    if batch is not None and type is not None:
        raise InvalidInput("name a batch or a type, not both.")
    if batch is not None:
        return Pause(BATCH, batch_id(hv, batch) or "", reason, hv.actor, 0)
    if type is not None:
        return Pause(TYPE, validate.name("the type", type), reason, hv.actor, 0)
    return Pause(ALL, "", reason, hv.actor, 0)
