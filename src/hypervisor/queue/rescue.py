"""Sweeping: put back the tasks of dead workers, and start tasks whose time has come.

No claim is taken from a holder that may be alive: on this host its process must
be proven gone; a holder elsewhere, or one without a process, loses the claim
when its lease, or that of its host, has expired by the store's clock. Processes
of a dead worker are ended before its task can be claimed again, and results that it had not yet
reported are settled, not repeated.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby

from hypervisor.core.errors import RequestError, StoreError, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.queue import settle
from hypervisor.queue.context import Context
from hypervisor.queue.lease import AttemptResult, Holder, Leftovers, Worker, parse_token
from hypervisor.queue.sql import claims, readiness, settlement

INTERVAL = 1_000


class SweepResult(NamedTuple):
    reclaimed: tuple[str, ...]
    started: int
    overdue: tuple[str, ...]


def sweep(hv: Context, now: int | None = None) -> SweepResult:
    """Requeue tasks whose worker is gone, and release tasks whose start time has come."""
    at = hv.store.now() if now is None else now
    hv.swept_at = at
    reclaimed: list[str] = []
    overdue: list[str] = []
    _declare_hosts_gone(hv, at)
    by_worker = sorted(
        hv.store.read(claims.holders, hv.probe.boot(), at), key=lambda holder: holder.worker.id
    )
    for _, group in groupby(by_worker, key=lambda holder: holder.worker.id):
        holders = list(group)
        gone = hv.probe.is_gone(holders[0].worker)
        lapsed = [holder for holder in holders if holder.has_lapsed(at)]
        if gone:
            reclaimed += reap_worker(hv, holders[0].worker, holders, at)
        elif gone is None:
            reclaimed += [h.task for h in lapsed if _reclaim_lapsed(hv, h, at)]
        else:  # a worker of a host that was declared gone stops by itself
            overdue += [holder.task for holder in lapsed if not holder.host_state]
    started = (
        hv.store.write(readiness.promote_due, at) if hv.store.read(readiness.any_due, at) else 0
    )
    return SweepResult(tuple(reclaimed), started, tuple(overdue))


def _declare_hosts_gone(hv: Context, now: int) -> None:
    """Only hosts of a shared store have leases."""
    if hv.store.is_shared:
        from hypervisor.queue.sql import hosts

        if hv.store.read(hosts.any_lapsed, now):
            hv.store.write(hosts.declare_gone, now)


def sweep_if_due(hv: Context, now: int) -> None:
    """Sweep at most once a second per process, so that claims stay cheap."""
    if not 0 <= now - hv.swept_at < INTERVAL:
        sweep(hv, now)


def reap_worker(hv: Context, worker: Worker, holders: list[Holder], now: int) -> list[str]:
    """Clean up after a dead worker. Returns the tasks that were put back."""
    leftovers = hv.launcher.remains(worker) if hv.is_equipped else None
    attempts = [f"{h.task}.{h.attempt}" for h in holders if h.starts_processes]
    may_run = leftovers is not None or (hv.is_equipped and attempts)
    if may_run and hv.launcher.end_leftovers(worker, leftovers, attempts) is None:
        return []  # a process cannot be ended: the worker keeps its tasks
    if leftovers is not None:
        _recover_output(hv, worker, leftovers)
        _settle(hv, leftovers.verdicts, now)
    why = f"worker {worker.name} (process {worker.pid} on {worker.host}) is gone"
    requeued = [h.task for h in holders if _reclaim(hv, h, why, now, _had_started(h, leftovers))]
    if leftovers is not None:  # it may have died before it could write this into their files
        settled = [verdict.token.task for verdict in leftovers.verdicts]
        hv.tasks_changed([*dict.fromkeys((*settled, *requeued))], ended=True)
    _end_sessions(hv, worker, now)
    if leftovers is not None and not _holds_more(hv, worker):
        hv.launcher.forget_leftovers(worker, leftovers)  # last: its absence must be reliable
    return requeued


def _end_sessions(hv: Context, worker: Worker, now: int) -> None:
    """Close the agent sessions that a dead worker left open."""
    from hypervisor.queue.sql import agent_sessions

    for run in hv.store.read(agent_sessions.sessions, worker=worker.id):
        if run.outcome is None:
            if hv.is_equipped:
                hv.clean_up_agent(worker, run)
            hv.store.write(agent_sessions.close, run.id, "crashed", run.figures, now=now)


def _recover_output(hv: Context, worker: Worker, leftovers: Leftovers) -> None:
    running = parse_token(leftovers.running) if leftovers.running else None
    ended = [(verdict.token.task, verdict.token.attempt) for verdict in leftovers.verdicts]
    hv.outputs.recover(worker.id, running and (running.task, running.attempt), ended)


def _settle(hv: Context, verdicts: Sequence[AttemptResult], now: int) -> None:
    """A result that cannot be stored must not hold up the others, or every sweep."""
    try:
        settle.settle(hv.store, verdicts, now)
    except StoreError:
        raise
    except Exception:
        for verdict in verdicts:
            why = "its result could not be saved"
            with suppress(RequestError):
                try:
                    settle.settle(hv.store, [verdict], now)
                except (ValueError, TypeError, OverflowError):
                    settle.settle(hv.store, [AttemptResult(verdict.token, "fail", reason=why)], now)


def _holds_more(hv: Context, worker: Worker) -> bool:
    """Tasks that could not be put back this time need the journal again next time."""
    return hv.store.read(claims.holds_any, worker.id)


def _reclaim(hv: Context, holder: Holder, why: str, now: int, started: bool = True) -> bool:
    from hypervisor.queue.sql import stops

    for stop in hv.store.read(stops.stops, [holder.task]):
        if stop.attempt == holder.attempt and stop.next == "cancel":
            from hypervisor.queue.sql import steer

            with suppress(WrongState):  # another sweep was faster
                hv.store.write(steer.cancel, holder.task, stop.reason, stop.actor, now)
            return False
    return hv.store.write(settlement.reclaim, holder, why, now, started)


def _had_started(holder: Holder, leftovers: Leftovers | None) -> bool:
    """A journal names the attempt that was running; others had not started."""
    if leftovers is None:
        return True
    token = parse_token(leftovers.running) if leftovers.running else None
    return token is not None and (token.task, token.attempt) == (holder.task, holder.attempt)


def _reclaim_lapsed(hv: Context, holder: Holder, now: int) -> bool:
    """The loss of a host does not count as a crash: it may have lost its network."""
    worker = holder.worker
    if holder.host_state:
        why = f"host {worker.host} of worker {worker.name} {claims.HOST_LOST}"
    else:
        why = f"worker {worker.name} on {worker.host} did not renew its lease"
    return _reclaim(hv, holder, why, now, started=not holder.host_state)
