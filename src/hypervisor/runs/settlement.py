"""What a worker holds and what has ended, on its way to the store.

A result is in the journal at once and in the store a moment later, several at a time together
with the next claim.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, TypedDict, Unpack

from hypervisor.core.errors import RequestError, StoreError
from hypervisor.inputs.task_files.write_back import write_back, write_back_all
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Lease, Token, Usage, parse_token
from hypervisor.queue.retry import back_off
from hypervisor.queue.settle import settle_and_claim
from hypervisor.queue.sql import steer
from hypervisor.runs import sql
from hypervisor.runs.retrying_store import if_possible, patiently
from hypervisor.store import settings

if TYPE_CHECKING:
    from hypervisor.queue.attempt import Ended
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import EndEvent
    from hypervisor.queue.task import Json
    from hypervisor.runs.spec import Stop
    from hypervisor.runs.worker import WorkerContext
    from hypervisor.store.database import Database

SMALLEST_PEAK = 1 << 20
PartsOf = Callable[["Context", str], tuple[str, ...]]  # the batches that make a whole with one


class EndDetails(TypedDict, total=False):
    result: Json
    unblock: str | None
    retry_at: int | None
    receipts: tuple[str, ...]
    proposals: bool


class Settlement:
    """`after_flush` gets the results that the store has taken, `after_cancel` the task that was
    cancelled instead of settled."""

    def __init__(
        self,
        ctx: WorkerContext,
        parts_of: PartsOf,
        *,
        after_flush: Callable[[list[AttemptResult]], None] = lambda results: None,
        after_cancel: Callable[[str], None] = lambda task: None,
    ) -> None:
        self.ctx, self._parts_of = ctx, parts_of
        self._after_flush, self._after_cancel = after_flush, after_cancel
        self.held: deque[Lease] = deque()  # claimed, not begun
        self.ended: list[AttemptResult] = []  # in the journal, not in the store
        self.flushed = time.monotonic()

    # What becomes of an attempt

    def add(self, result: AttemptResult) -> None:
        self.ctx.journal.ended(result)
        self.ended.append(result)
        if result.event == "fail" and self.ctx.spec.fail_fast:
            self.flush()  # before anything else is started or claimed

    def end(
        self,
        lease: Lease,
        event: EndEvent,
        reason: str | None = None,
        usage: Usage | None = None,
        **more: Unpack[EndDetails],
    ) -> None:
        """`release` puts the task back unpunished; `fail` is final."""
        self.add(AttemptResult(token_of(lease), event, reason=reason, usage=usage, **more))

    def fail_or_retry(
        self, lease: Lease, reason: str, usage: Usage | None, **more: Unpack[EndDetails]
    ) -> None:
        task = lease.task
        if task.failures >= task.retries:
            return self.end(lease, "fail", reason, usage, **more)
        more["retry_at"] = self.ctx.hv.store.now() + back_off(task.failures + 1)
        return self.end(lease, "back_off", reason, usage, **more)

    def stop(self, lease: Lease, stop: Stop, usage: Callable[[], Usage]) -> None:
        """After an attempt was stopped."""
        if stop.next == "cancel":
            self.cancel(stop)
        elif stop.next in ("release", "fail"):
            self.end(lease, stop.next, stop.reason, usage())
        elif stop.next == "limit":
            self.fail_or_retry(lease, stop.reason, usage())

    def cancel(self, stop: Stop) -> None:
        store, spec = self.ctx.hv.store, self.ctx.spec
        with suppress(RequestError):  # it has ended otherwise meanwhile
            store.write(steer.cancel, stop.task, stop.reason, stop.actor, store.now())
            store.write_unsynced(sql.forget_stop, stop.task)
        if spec.write_back != "none":
            write_back(self.ctx.hv, stop.task, spec)
        self._after_cancel(stop.task)

    def release_held(self, reason: str) -> None:
        """Put back what was not begun, unless somebody has asked for its end meanwhile."""
        stops = {(stop.task, stop.attempt): stop for stop in self._stops(self.held)}
        for lease in self.held:
            token = parse_token(lease.token)
            stop = stops.get((token.task, token.attempt))
            if stop is None:
                self.ended.append(AttemptResult(token, "release", reason=reason))
            elif stop.next in ("release", "fail"):
                self.ended.append(AttemptResult(token, stop.next, reason=stop.reason))
            else:
                with suppress(StoreError):  # then it stays claimed, and is not run either
                    self.cancel(stop)
        self.held.clear()

    def _stops(self, leases: Collection[Lease]) -> list[Stop]:
        with suppress(StoreError):
            return self.ctx.hv.store.read(sql.stops, [lease.task.id for lease in leases])
        return []

    # To the store

    def flush(self) -> None:
        if self.ended:
            self._exchange(None)

    def flush_if_possible(self) -> None:
        """Beside a running attempt: no trouble with the store is worth ending it for."""
        with suppress(StoreError):
            self.flush()

    def claim(self, request: ClaimRequest) -> None:
        """In one transaction with whatever has ended."""
        self.held += self._exchange(request)

    def _exchange(self, request: ClaimRequest | None) -> list[Lease]:
        def exchange(store: Database) -> list[Lease]:
            """With the time of the try: a lease begins when it is given."""
            return settle_and_claim(store, self.ended, request, store.now())[1]

        leases = patiently(self.ctx.hv, exchange)
        if self.ended:
            self._follow_up()
        self.flushed = time.monotonic()
        return leases

    def _follow_up(self) -> None:
        """The store has all that has ended."""
        results, spec = self.ended, self.ctx.spec
        if spec.write_back != "none":
            write_back_all(self.ctx.hv, [result.token.task for result in results], spec)
        self.ctx.journal.clear()
        self.ended = []
        failed = next((result for result in results if result.event == "fail"), None)
        if failed is not None and spec.fail_fast:
            self._fail_fast(failed)
        self._after_flush(results)

    def _fail_fast(self, failed: AttemptResult) -> None:
        reason = f"fail-fast: {failed.token.task} failed ({failed.reason})"[:500]
        for batch in self._parts_of(self.ctx.hv, self.ctx.batch):
            self.ctx.pause_batch(reason, batch)
        self.release_held(reason)


class UsageMeter:
    """What an attempt cost, and what a type of task needs."""

    def __init__(self, ctx: WorkerContext) -> None:
        self._ctx = ctx
        self._peaks: dict[str, tuple[float, int]] = {}  # by type: the estimate, and what is stored

    def usage_of(self, lease: Lease, ended: Ended, sampled_peak: int) -> Usage:
        task, outputs, most = lease.task, self._ctx.outputs, self._ctx.settings.keep_each
        peak = max(ended.peak, sampled_peak)
        size = outputs.ended(task.id, task.attempts)
        if size is not None and size > most:
            outputs.bound(task.id, task.attempts, most)
        self.add_peak(task.type, peak)
        return Usage(ended.exit_code, round(ended.cpu * 1000), peak // 1024 or None, size)

    def add_peak(self, task_type: str, peak: int) -> None:
        """The memory that is needed at most: up at once, down slowly, stored when it matters.
        What an agent needs depends on the agent more than on the task."""
        kind = f"agent {self._ctx.agent}" if self._ctx.agent else task_type
        estimate, stored = self._peaks.get(kind) or (0.0, 0)
        estimate = max(peak, estimate * 0.99, SMALLEST_PEAK)
        if not 0.8 < estimate / (stored or 1) < 1.1:
            stored = int(estimate)
            with if_possible(self._ctx.hv):  # the result of the attempt comes first
                self._ctx.hv.store.write(settings.set_setting, f"peak {kind}", str(stored))
        self._peaks[kind] = (estimate, stored)


def token_of(lease: Lease) -> Token:
    """What `parse_token` makes of it; but this one comes from the store itself."""
    return Token(lease.task.id, lease.task.attempts, lease.token.rpartition(".")[2])
