"""Sweeping: put back what dead workers held, start what was waiting for its time.

No claim is taken from a holder that may live: on this host its process must be
proven gone; a holder elsewhere, or one that named no process, loses the claim
when its lease has lapsed by the store's clock. What a dead worker left running
is ended before its task can be handed out again, and what it had finished but
not yet told the store is settled, not repeated.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from hypervisor.agents.sql import sessions
from hypervisor.core.errors import RequestError, StoreError, WrongState
from hypervisor.inputs.task_files.write_back import write_back
from hypervisor.queue import settle
from hypervisor.queue.context import Context
from hypervisor.queue.lease import AttemptResult, Holder, Worker, parse_token
from hypervisor.queue.sql import claims, readiness, settlement, steer
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import Leftovers

INTERVAL = 1_000
MOST_RUNNING = 100_000


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
    by_worker = sorted(
        hv.store.read(claims.holders, hv.probe.boot(), at), key=lambda holder: holder.worker.id
    )
    for _, group in groupby(by_worker, key=lambda holder: holder.worker.id):
        held = list(group)
        gone = hv.probe.is_gone(held[0].worker)
        lapsed = [holder for holder in held if holder.until < at]
        if gone:
            reclaimed += reap_worker(hv, held[0].worker, held, at)
        elif gone is None:
            reclaimed += [h.task for h in lapsed if _reclaim(hv, h, _lapsed(h.worker), at)]
        else:
            overdue += [holder.task for holder in lapsed]
    started = (
        hv.store.write(readiness.promote_due, at) if hv.store.read(readiness.any_due, at) else 0
    )
    return Swept(tuple(reclaimed), started, tuple(overdue))


def sweep_if_due(hv: Context, now: int) -> None:
    """Sweep at most once a second per process, so that claims stay cheap."""
    if not 0 <= now - hv.swept_at < INTERVAL:
        sweep(hv, now)


def reap_worker(hv: Context, worker: Worker, held: list[Holder], now: int) -> list[str]:
    """Settle a dead worker's affairs. Returns the tasks that were put back."""
    remains = hv.launcher.remains(worker) if hv.is_equipped else None
    attempts = [f"{h.task}.{h.attempt}" for h in held if h.starts_processes]
    may_run = remains is not None or (hv.is_equipped and attempts)
    if may_run and hv.launcher.end_leftovers(worker, remains, attempts) is None:
        return []  # something of it cannot be ended: its task stays with it
    if remains is not None:
        _recover_output(hv, worker, remains)
        _settle(hv, remains.verdicts, now)
    why = f"worker {worker.name} (process {worker.pid} on {worker.host}) is gone"
    back = [h.task for h in held if _reclaim(hv, h, why, now, _had_started(h, remains))]
    if remains is not None:  # it may have died before it could write this into their files
        for task in dict.fromkeys([*(v.token.task for v in remains.verdicts), *back]):
            write_back(hv, task, edits=True)
    for run in hv.store.read(sessions.sessions, worker=worker.id):
        if run.outcome is None:
            if hv.is_equipped:
                hv.clean_up_agent(worker, run)
            hv.store.write(sessions.close, run.id, "crashed", run.figures, now=now)
    if remains is not None and not _holds_more(hv, worker):
        hv.launcher.forget_leftovers(worker, remains)  # last: whoever finds none may rely on that
    return back


def _recover_output(hv: Context, worker: Worker, remains: Leftovers) -> None:
    running = parse_token(remains.running) if remains.running else None
    hv.outputs.recover(worker.id, running and (running.task, running.attempt))


def _settle(hv: Context, verdicts: Sequence[AttemptResult], now: int) -> None:
    """One verdict that the store cannot take must not keep the others, and every sweep, back."""
    try:
        settle.settle(hv.store, verdicts, now)
    except StoreError:
        raise
    except Exception:
        for verdict in verdicts:
            why = "what came of it could not be kept"
            with suppress(RequestError):
                try:
                    settle.settle(hv.store, [verdict], now)
                except (ValueError, TypeError, OverflowError):
                    settle.settle(hv.store, [AttemptResult(verdict.token, "fail", reason=why)], now)


def _holds_more(hv: Context, worker: Worker) -> bool:
    """What could not be put back this time needs the journal the next time, too."""
    return any(
        each.worker.id == worker.id for each in hv.store.read(runs_sql.running, None, MOST_RUNNING)
    )


def _reclaim(hv: Context, holder: Holder, why: str, now: int, started: bool = True) -> bool:
    for stop in hv.store.read(runs_sql.stops, [holder.task]):
        if stop.attempt == holder.attempt and stop.next == "cancel":
            with suppress(WrongState):  # another sweep was quicker
                hv.store.write(steer.cancel, holder.task, stop.reason, stop.actor, now)
            return False
    return hv.store.write(settlement.reclaim, holder, why, now, started)


def _had_started(holder: Holder, remains: Leftovers | None) -> bool:
    """A worker that kept a journal wrote down what it began; the rest cost nobody anything."""
    if remains is None:
        return True
    token = parse_token(remains.running) if remains.running else None
    return token is not None and (token.task, token.attempt) == (holder.task, holder.attempt)


def _lapsed(worker: Worker) -> str:
    return f"worker {worker.name} on {worker.host} let its lease lapse"
