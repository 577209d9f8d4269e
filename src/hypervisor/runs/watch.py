"""Watching a long attempt: stop requests, its lease and its limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError
from hypervisor.queue.lease import Lease, parse_token
from hypervisor.queue.sql import claims
from hypervisor.queue.sql import stops as stops_sql
from hypervisor.queue.stop import Stop, StopAction
from hypervisor.resources.limits import Finding, Sample
from hypervisor.runs.worker import LEASE_MS

if TYPE_CHECKING:
    from hypervisor.resources.overseer import Overseer
    from hypervisor.runs.worker import WorkerContext

HEARTBEAT = 10.0
LEASED_LOOK = 30.0  # seconds between looks at a claim that the lease of the host keeps
ACTS = {"warn": "is near its", "stop": "stopped at its", "would_stop": "would stop at its"}

Check = Callable[[float], Stop | None]


class Watch:
    """`look` periodically; it returns a Stop when the attempt must end."""

    def __init__(
        self, checks: Sequence[Check], store_checks: Sequence[Check], overseer: OverseerCheck
    ) -> None:
        self._checks, self._store_checks, self._overseer = checks, store_checks, overseer

    def look(self, now: float) -> Stop | None:
        return _first_stop(self._checks, now) or self._check_store(now) or self._overseer.look(now)

    def _check_store(self, now: float) -> Stop | None:
        with suppress(StoreError):  # the attempt can continue without the store
            return _first_stop(self._store_checks, now)
        return None

    @property
    def peak(self) -> int:
        return self._overseer.peak


def _first_stop(checks: Sequence[Check], now: float) -> Stop | None:
    return next((stop for check in checks if (stop := check(now)) is not None), None)


def signal_check(ctx: WorkerContext) -> Check:
    """Whether a signal asks the worker to stop at once."""
    stop = Stop("", 0, "release", "the worker was asked to stop", ctx.me.name)
    return lambda now: stop if ctx.runner.asked == "stop" else None


class LeaseCheck:
    """Whether a stop was requested, and whether the claim is still ours."""

    def __init__(self, ctx: WorkerContext, lease: Lease, now: float) -> None:
        self.ctx, self.token = ctx, parse_token(lease.token)
        self._last_heartbeat = now
        self._heartbeat = LEASED_LOOK if ctx.fence.leased_by else HEARTBEAT
        self._stops_mark = ""

    def requested(self, now: float) -> Stop | None:
        """The supervisor of a leased host looks for stops once a second, for all its workers."""
        mark = self.ctx.fence.stops()
        if mark and mark == self._stops_mark:
            return None
        self._stops_mark = mark
        stops = self.ctx.hv.store.read(stops_sql.stops, [self.token.task])
        return next((stop for stop in stops if stop.attempt == self.token.attempt), None)

    def lost(self, now: float) -> Stop | None:
        if now - self._last_heartbeat < self._heartbeat:
            return None
        self._last_heartbeat = now
        return None if self._is_kept() else self.stop("lost", "the claim has ended")

    def _is_kept(self) -> bool:
        """Whether the claim is ours; without a lease of the host, this renews it."""
        store = self.ctx.hv.store
        if self.ctx.fence.leased_by:
            return store.read(claims.is_live, self.token)
        until = self.ctx.hv.now() + LEASE_MS
        return self.token in store.write_unsynced(claims.heartbeat, [self.token], until)

    def stop(self, action: StopAction, reason: str) -> Stop:
        return Stop(self.token.task, self.token.attempt, action, reason, self.ctx.me.name)


class OverseerCheck:
    """Hands samples of the attempt to the overseer, and reports its findings."""

    def __init__(
        self,
        ctx: WorkerContext,
        output: tuple[str, int],
        overseer: Overseer,
        *,
        started: float,
        is_task: bool = True,
    ) -> None:
        """`output`: the task and attempt under which the output is stored; for a pull agent, its
        session instead of a task."""
        self.ctx, self._output, self._overseer = ctx, output, overseer
        self._started, self._is_task = started, is_task
        self.peak = 0

    def look(self, now: float) -> Stop | None:
        return self.judge(self._sample(now))

    def judge(self, sample: Sample) -> Stop | None:
        """Report what is new about the sample; a Stop if the attempt has reached a limit."""
        stop = None
        for finding in self._overseer.look(sample, self.ctx.runner.exact_memory):
            if self._is_task:
                self._note(finding)
            if finding.act == "stop":
                reason = f"{finding.limit} limit: {finding.evidence}"
                stop = Stop(*self._output, "limit", reason, self.ctx.me.name)
        return stop

    def _sample(self, now: float) -> Sample:
        vital = self.ctx.runner.vital()
        self.peak = max(self.peak, vital.memory)
        written = self.ctx.outputs.local_size(*self._output) or 0
        at = int((now - self._started) * 1000)
        return Sample(at, vital.cpu, vital.memory, vital.written, written)

    def _note(self, finding: Finding) -> None:
        data = {
            "limit": finding.limit,
            "act": finding.act,
            "evidence": finding.evidence,
            "message": f"{ACTS[finding.act]} {finding.limit} limit: {finding.evidence}",
        }
        with suppress(StoreError):  # the stop itself needs no store
            self.ctx.note("overseer", data, self._output[0])
