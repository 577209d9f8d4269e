"""The figures of a batch: its duration, rate and time left, and what its attempts used."""

from __future__ import annotations

from hypervisor.batches.sql import summary as summary_sql
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.history import Totals
from hypervisor.queue.lifecycle import IN_PROGRESS, OPEN
from hypervisor.queue.sql import queries

MINUTE = 60_000  # milliseconds
TOO_EARLY = 1_000


class Figures(NamedTuple):
    """Times are in milliseconds."""

    took: int  # from the first attempt to the last, or until now
    per_minute: float | None  # tasks that ended: lately, or on average if nothing is running
    left: int | None  # at this rate; None if nothing is running
    attempts: int
    cpu_ms: int
    peak_bytes: int


def figures(hv: Context, batch: str, now: int | None = None) -> Figures:
    """Add up the attempts of a batch, and estimate when it is done."""
    at, id = hv.at(now), batch_id(hv, batch)
    assert id is not None
    sums = hv.store.read(summary_sql.totals, id, at)
    took = max(sums.ended - sums.begun, 0)
    to_do = sum(sums.states.get(state, 0) for state in OPEN)
    is_running = bool(sums.states.get(IN_PROGRESS))
    rate = _recent(hv, id, sums, at) if is_running else _average(sums, took, to_do)
    left = round(to_do * MINUTE / rate) if rate and is_running else None
    return Figures(took, rate, left, sums.attempts, sums.cpu_ms, sums.peak_kb * 1024)


def _average(sums: Totals, took: int, to_do: int) -> float | None:
    ended = sum(sums.states.values()) - to_do
    return ended * MINUTE / took if took >= TOO_EARLY else None


def _recent(hv: Context, batch: str, sums: Totals, now: int) -> float | None:
    """The rate of the last minutes. A batch that began after them has had less time."""
    stats = hv.store.read(queries.stats, batch, now)
    window = stats.window_seconds * 1_000
    ran = min(max(now - sums.begun, 1), window)
    if not sums.begun or ran < TOO_EARLY:
        return None
    return (stats.completed_per_minute + stats.failed_per_minute) * window / ran or None
