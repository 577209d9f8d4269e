"""Watching one attempt that lasts: is it to stop, is it still ours, does it keep its limits?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError
from hypervisor.queue.lease import Lease, parse_token
from hypervisor.queue.sql import claims, event_log
from hypervisor.resources.limits import Finding, Limits, Sample
from hypervisor.resources.overseer import Overseer
from hypervisor.runs import sql
from hypervisor.runs.spec import Stop

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Worker
    from hypervisor.runs.outputs.files import Outputs
    from hypervisor.runs.runner import Runner

BEAT = 10.0


class Watch:
    """`look` now and then; it answers with a Stop when the attempt must not go on.

    The Stop's `next` is what a person asked for, "lost" if the claim has ended, or
    "limit" if the overseer stopped it.
    """

    def __init__(
        self,
        hv: Context,
        lease: Lease,
        runner: Runner,
        outputs: Outputs,
        limits: Limits,
        dry_run: bool,
        worker: Worker,
        lease_ms: int,
        now: float,
    ) -> None:
        self.hv, self.runner, self.outputs = hv, runner, outputs
        self.task, self.token = lease.task, parse_token(lease.token)
        self.worker, self.lease_ms = worker, lease_ms
        self.overseer = Overseer(limits, dry_run)
        self.started = self.beaten = now
        self.peak = 0

    def look(self, now: float) -> Stop | None:
        if self.runner.asked == "stop":
            return self._stop("release", "the worker was told to stop")
        try:
            return self._asked() or self._lost(now) or self._overdone(now)
        except StoreError:  # it may come back, and the attempt needs no store to go on
            return self._overdone(now, tell=False)

    def _asked(self) -> Stop | None:
        return next(
            (
                s
                for s in self.hv.store.read(sql.stops, [self.task.id])
                if s.attempt == self.token.attempt
            ),
            None,
        )

    def _lost(self, now: float) -> Stop | None:
        if now - self.beaten < BEAT:
            return None
        self.beaten = now
        if self.token in self.hv.store.write_unsynced(
            claims.heartbeat, [self.token], self.hv.now() + self.lease_ms
        ):
            return None
        return self._stop("lost", "the claim has ended")

    def _overdone(self, now: float, tell: bool = True) -> Stop | None:
        vital = self.runner.vital()
        self.peak = max(self.peak, vital.memory)
        output = self.outputs.size(self.task.id, self.token.attempt) or 0
        at = int((now - self.started) * 1000)
        sample = Sample(at, vital.cpu, vital.memory, vital.written, output)
        stop = None
        for finding in self.overseer.look(sample, self.runner.exact_memory):
            if tell:
                self._tell(finding)
            if finding.act == "stop":
                stop = self._stop("limit", f"{finding.limit} limit: {finding.evidence}")
        return stop

    def _tell(self, finding: Finding) -> None:
        said = {"warn": "is near its", "stop": "stopped at its", "would_stop": "would stop at its"}
        data = {
            "limit": finding.limit,
            "act": finding.act,
            "evidence": finding.evidence,
            "said": f"{said[finding.act]} {finding.limit} limit: {finding.evidence}",
        }
        self.hv.store.write_unsynced(
            event_log.note,
            "overseer",
            data,
            self.worker.name,
            self.hv.now(),
            task=self.task.id,
            batch=self.task.batch,
        )

    def _stop(self, after: str, reason: str) -> Stop:
        return Stop(self.task.id, self.token.attempt, after, reason, self.worker.name)
