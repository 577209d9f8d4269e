"""How a worker that runs commands or functions claims tasks.

Short tasks are claimed several at a time. When one takes long, the others are released.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import ClaimRequest, Lease
from hypervisor.queue.sql import queries
from hypervisor.runs.spec import spec_data, spec_from
from hypervisor.runs.worker import LEASE_MS

if TYPE_CHECKING:
    from hypervisor.queue.task import Json
    from hypervisor.runs.settlement import Settlement
    from hypervisor.runs.worker import WorkerContext

FLUSH = 0.05  # seconds that a result may wait to be stored together with others
SHORT_ROUND, LONG_ROUND = 0.04, 0.1  # seconds for the tasks of one claim
LONG_ATTEMPT = 0.25
MAX_CLAIMED = 64
IDLE = 1.0


class IdleTimer:
    """How long a worker without work keeps polling before it exits."""

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
        """Settle and, in the same transaction, claim about as many tasks as have just ended."""
        pace = len(self.settlement.ended)
        more = min(pace + pace // 2, MAX_CLAIMED) - len(self.settlement.held)
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
    """Whether the run spec is still the one that the worker started with; if not, it makes way for
    a new worker."""

    def __init__(self, ctx: WorkerContext) -> None:
        self._store, self._batch, self._spec = ctx.hv.store, ctx.batch, ctx.spec
        self._stored = spec_data(ctx.spec)

    def is_current(self) -> bool:
        stored = self._store.read(queries.batch, self._batch).spec
        return stored == self._stored or self._means_the_same(stored)

    def _means_the_same(self, stored: Json) -> bool:
        """An earlier version may have stored redundant fields."""
        try:
            return spec_from(stored) == self._spec
        except InvalidInput:  # declared again by a later version
            return False


def _next_size(size: int, seconds: float) -> int:
    if seconds < SHORT_ROUND:
        return min(size * 2, MAX_CLAIMED)
    return max(size // 2, 1) if seconds > LONG_ROUND else size
