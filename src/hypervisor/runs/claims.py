"""How a worker of commands or functions claims.

Short tasks are claimed several at a time; once one takes long, those claimed with it go back for
others to take.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import ClaimRequest, Lease
from hypervisor.queue.sql import queries
from hypervisor.runs.spec import spec_data
from hypervisor.runs.worker import LEASE_MS

if TYPE_CHECKING:
    from hypervisor.runs.settlement import Settlement
    from hypervisor.runs.worker import WorkerContext

FLUSH = 0.05  # seconds an ended attempt may wait for company on its way to the store
SHORT_ROUND, LONG_ROUND = 0.04, 0.1  # seconds that the tasks of one claim took
LONG_ATTEMPT = 0.25
MOST_CLAIMED = 64
IDLE = 1.0


class IdleTimer:
    """A worker without work looks again for a while, then leaves the rest to the supervisor."""

    def __init__(self, ctx: WorkerContext) -> None:
        self._runner = ctx.runner
        self.since: float | None = None

    def wait(self) -> bool:
        now = time.monotonic()
        if self.since is None:
            self.since = now
        self._runner.pause(min(0.02 + (now - self.since) / 4, 0.25))
        return now - self.since < IDLE


class BatchClaims:
    def __init__(
        self, ctx: WorkerContext, settlement: Settlement, capabilities: tuple[str, ...] = ()
    ) -> None:
        self.ctx, self.settlement = ctx, settlement
        self._filter = ClaimFilter(batch=ctx.batch, capabilities=capabilities)
        self._declared = Declared(ctx)
        self._idle = IdleTimer(ctx)
        self._size = ctx.spec.claim or 1
        self._claimed: float | None = None
        self._started = 0.0
        self._is_over = False

    def next(self) -> Lease | None:
        held = self.settlement.held
        if not held:
            self._is_over = not self._declared.is_current()
            if not self._is_over:
                self._claim()
        self._started = time.monotonic()
        return held.popleft() if held and not self.ctx.runner.asked else None

    def attempt_ended(self) -> None:
        now = time.monotonic()
        if now - self._started > LONG_ATTEMPT:
            self._size = self.ctx.spec.claim or 1
        if now - self.settlement.flushed > FLUSH:
            self._flush_and_claim()

    def wait(self) -> bool:
        self._size = self.ctx.spec.claim or 1
        return not self._is_over and self._idle.wait()

    def _claim(self) -> None:
        idle = self._idle.since is not None
        if self.ctx.spec.claim is None and not idle and self._claimed is not None:
            self._size = _next_size(self._size, time.monotonic() - self._claimed)
        self._take(self._size)
        if self.settlement.held:
            self._idle.since = None

    def _flush_and_claim(self) -> None:
        """Settle and, in the same transaction, claim what keeps us busy until the next time:
        about as much again."""
        pace = len(self.settlement.ended)
        more = min(pace + pace // 2, MOST_CLAIMED) - len(self.settlement.held)
        if self.ctx.spec.claim is not None or more <= 0 or self.ctx.runner.asked:
            return self.settlement.flush()
        if not self._declared.is_current():
            return self.settlement.flush()
        self._take(more)
        self._size = max(pace, 1)
        return None

    def _take(self, count: int) -> None:
        self.settlement.claim(ClaimRequest(self.ctx.me, count, LEASE_MS, self._filter))
        self._claimed = time.monotonic()


class Declared:
    """Whether the batch is still to be run as it was when the worker started: if not, a new
    worker does it."""

    def __init__(self, ctx: WorkerContext) -> None:
        self._store, self._batch, self._spec = ctx.hv.store, ctx.batch, spec_data(ctx.spec)

    def is_current(self) -> bool:
        return bool(self._store.read(queries.batch, self._batch).spec == self._spec)


def _next_size(size: int, took: float) -> int:
    if took < SHORT_ROUND:
        return min(size * 2, MOST_CLAIMED)
    return max(size // 2, 1) if took > LONG_ROUND else size
