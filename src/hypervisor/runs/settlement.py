"""Writes a worker's results to the store.

A result is in the journal at once. It reaches the store a moment later, together with others and
with the next claim.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, TypedDict, Unpack

from hypervisor.core.errors import RequestError, StoreError
from hypervisor.inputs.item_files import file_state, path_of_item
from hypervisor.queue.lease import (
    AttemptResult,
    ClaimRequest,
    Lease,
    SettledResult,
    Token,
    Usage,
    parse_token,
)
from hypervisor.queue.lifecycle import back_off
from hypervisor.queue.settle import settle_and_claim
from hypervisor.queue.sql import item_files, steer
from hypervisor.queue.sql import stops as stops_sql
from hypervisor.runs import sql
from hypervisor.runs.retrying_store import if_possible, retry_outage

if TYPE_CHECKING:
    from hypervisor.queue.attempt import Ended
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import EndEvent
    from hypervisor.queue.stop import Stop
    from hypervisor.queue.task import Json
    from hypervisor.runs.worker import WorkerContext
    from hypervisor.store.database import Database, Row

MIN_PEAK = 1 << 20
SALVAGED = ("complete", "submit", "fail", "back_off", "block")  # results that are kept if late
PartsOf = Callable[["Context", str], tuple[str, ...]]  # all batches of a batch's pipeline


class EndDetails(TypedDict, total=False):
    result: Json
    unblock: str | None
    retry_at: int | None
    receipts: tuple[str, ...]
    proposals: bool


class Settlement:
    """`after_flush` gets the results that were stored, `after_cancel` a task that was cancelled
    instead."""

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
        self._files: list[Row] = []  # states of item files after their attempts

    # Results of attempts

    def add(self, result: AttemptResult) -> None:
        self.ctx.journal.ended(result)
        self.ended.append(result)
        if result.event == "fail" and self.ctx.spec.fail_fast:
            self.flush()  # before anything else is started or claimed

    def record_file(self, lease: Lease) -> None:
        """Record the state of the item's file after an attempt, to detect later changes."""
        path = path_of_item(lease.task.data, self.ctx.spec.cwd)
        state = file_state(path) if path is not None else None
        if state is not None:
            self._files.append((lease.task.id, lease.task.attempts, *state))

    def save_files(self) -> None:
        """Optional: without a recorded state, the file's mtime shows whether it has changed."""
        files, self._files = self._files, []
        if files:
            with if_possible(self.ctx.hv):
                self.ctx.hv.store.write_unsynced(item_files.save, files)

    def end(
        self,
        lease: Lease,
        event: EndEvent,
        reason: str | None = None,
        usage: Usage | None = None,
        **more: Unpack[EndDetails],
    ) -> None:
        """`release` puts the task back and counts no failure; `fail` is final."""
        self.add(AttemptResult(token_of(lease), event, reason=reason, usage=usage, **more))

    def fail_or_retry(
        self, lease: Lease, reason: str, usage: Usage | None, **more: Unpack[EndDetails]
    ) -> None:
        task = lease.task
        if task.failures >= task.retries:
            return self.end(lease, "fail", reason, usage, **more)
        delay = back_off(task.failures + 1, self.ctx.spec.retry_delay)
        more["retry_at"] = self.ctx.hv.store.now() + delay
        return self.end(lease, "back_off", reason, usage, **more)

    def stop(self, lease: Lease, stop: Stop, usage: Callable[[], Usage]) -> None:
        """Settle an attempt that was stopped."""
        if stop.next == "cancel":
            self.cancel(stop)
        elif stop.next in ("release", "fail"):
            self.end(lease, stop.next, stop.reason, usage())
        elif stop.next == "limit":
            self.fail_or_retry(lease, stop.reason, usage())

    def cancel(self, stop: Stop) -> None:
        store, spec = self.ctx.hv.store, self.ctx.spec
        with suppress(RequestError):  # the task has ended in the meantime
            store.write(steer.cancel, stop.task, stop.reason, stop.actor, store.now())
            store.write_unsynced(stops_sql.forget_stop, stop.task)
        if spec.write_back != "none":
            self.ctx.hv.tasks_changed([stop.task], spec=spec)
        self._after_cancel(stop.task)

    def release_held(self, reason: str) -> None:
        """Release tasks that were not started, unless a stop has been requested since."""
        stops = {(stop.task, stop.attempt): stop for stop in self._stops(self.held)}
        for lease in self.held:
            token = parse_token(lease.token)
            stop = stops.get((token.task, token.attempt))
            if stop is None:
                self.ended.append(AttemptResult(token, "release", reason=reason))
            elif stop.next in ("release", "fail"):
                self.ended.append(AttemptResult(token, stop.next, reason=stop.reason))
            else:
                with suppress(StoreError):  # then it stays claimed and does not run
                    self.cancel(stop)
        self.held.clear()

    def _stops(self, leases: Collection[Lease]) -> list[Stop]:
        with suppress(StoreError):
            return self.ctx.hv.store.read(stops_sql.stops, [lease.task.id for lease in leases])
        return []

    # Writing to the store

    def flush(self) -> None:
        if self.ended:
            self._exchange(None)

    def flush_if_possible(self) -> None:
        """While an attempt runs: a store error must not end it."""
        with suppress(StoreError):
            self.flush()

    def claim(self, request: ClaimRequest) -> None:
        """Claim tasks, in one transaction with the results that are due; none if the lease of the
        host is about to end."""
        if self.ctx.fence.may_claim():
            self.held += self._exchange(request)
        else:
            self.flush_if_possible()

    def _exchange(self, request: ClaimRequest | None) -> list[Lease]:
        self.ctx.outputs.publish()

        def exchange(store: Database) -> tuple[list[SettledResult], list[Lease]]:
            # Every try has its own `now`: a lease starts when it is granted.
            return settle_and_claim(store, self.ended, request, store.now())

        settled, leases = retry_outage(self.ctx.hv, exchange)
        if self.ended:
            self._keep_late_results(settled)
            self._follow_up()
        self.flushed = time.monotonic()
        return leases

    def _keep_late_results(self, settled: list[SettledResult]) -> None:
        """Work that was finished after its claim had ended, while the host was cut off."""
        late = {answer.token: answer.lost for answer in settled if answer.lost}
        if not late:
            return
        from hypervisor.queue.sql import salvage

        for result in self.ended:
            why = late.get(str(result.token))
            if why and result.event in SALVAGED:
                with if_possible(self.ctx.hv):
                    store, me = self.ctx.hv.store, self.ctx.me
                    store.write(salvage.keep, result, why, f"{me.name}@{me.host}", store.now())

    def _follow_up(self) -> None:
        """After the results were stored."""
        results, spec = self.ended, self.ctx.spec
        self.save_files()
        if spec.write_back != "none":
            ended = [result.token.task for result in results]
            self.ctx.hv.tasks_changed(ended, spec=spec, ended=True)
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
    """Measures what attempts use, and learns how much memory a type of task needs."""

    def __init__(self, ctx: WorkerContext) -> None:
        self._ctx = ctx
        self._peaks: dict[str, tuple[float, int]] = {}  # by type: the estimate, and what is stored

    def usage_of(self, lease: Lease, ended: Ended, sampled_peak: int) -> Usage:
        task, outputs, most = lease.task, self._ctx.outputs, self._ctx.settings.keep_each
        peak = max(ended.peak, sampled_peak)
        size = outputs.ended(task.id, task.attempts)
        if size is not None and size > most:
            outputs.bound(task.id, task.attempts, most)
        outputs.finished(task.id, task.attempts)
        self.add_peak(task.type, peak)
        return Usage(ended.exit_code, round(ended.cpu * 1000), peak // 1024 or None, size)

    def add_peak(self, task_type: str, peak: int) -> None:
        """Update the estimated peak memory: it rises at once and falls slowly, and is stored when
        it has changed much. For agents it is kept per agent, not per type of task."""
        agent = self._ctx.agent
        task_type = "" if agent else task_type
        estimate, stored = self._peaks.get(task_type) or (0.0, 0)
        estimate = max(peak, estimate * 0.99, MIN_PEAK)
        if not 0.8 < estimate / (stored or 1) < 1.1:
            stored = int(estimate)
            with if_possible(self._ctx.hv):  # the result of the attempt comes first
                self._ctx.hv.store.write(sql.set_memory_peak, task_type, agent, stored)
        self._peaks[task_type] = (estimate, stored)


def token_of(lease: Lease) -> Token:
    """Like `parse_token`, but without checks: the token comes from the store."""
    return Token(lease.task.id, lease.task.attempts, lease.token.rpartition(".")[2])
