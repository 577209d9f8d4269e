"""Sweeping: put back what dead workers held, start what was waiting for its time.

No claim is taken from a holder that may live: on this host its process must be
proven gone; a holder elsewhere, or one that named no process, loses the claim
when its lease has lapsed by the store's clock.
"""

from typing import NamedTuple

from hypervisor.domain.lease import Holder
from hypervisor.operations.context import Context

INTERVAL = 1_000


class Swept(NamedTuple):
    reclaimed: tuple[str, ...]
    started: int
    overdue: tuple[str, ...]


def sweep(hv: Context, now: int | None = None) -> Swept:
    """Put back tasks whose worker is gone and release tasks whose start time has come."""
    at = hv.store.now() if now is None else now
    hv.swept_at = at
    reclaimed: list[str] = []
    overdue: list[str] = []
    gone: dict[str, bool | None] = {}
    for holder in hv.store.holders(hv.probe.boot(), at):
        if holder.worker.id not in gone:
            gone[holder.worker.id] = hv.probe.is_gone(holder.worker)
        why = _why_reclaim(holder, gone[holder.worker.id], at)
        if why and hv.store.reclaim(holder, why, at):
            reclaimed.append(holder.task)
        elif not why and holder.until < at:
            overdue.append(holder.task)
    started = hv.store.promote_due(at) if hv.store.due(at) else 0
    return Swept(tuple(reclaimed), started, tuple(overdue))


def sweep_if_due(hv: Context, now: int) -> None:
    """Sweep at most once a second per process, so that claims stay cheap."""
    if not 0 <= now - hv.swept_at < INTERVAL:
        sweep(hv, now)


def _why_reclaim(holder: Holder, gone: bool | None, now: int) -> str | None:
    worker = holder.worker
    if gone:
        return f"worker {worker.name} (process {worker.pid} on {worker.host}) is gone"
    if gone is None and holder.until < now:
        return f"worker {worker.name} on {worker.host} let its lease lapse"
    return None
