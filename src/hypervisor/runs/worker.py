"""The worker: claims tasks of one batch, runs each attempt, settles.

It has three parts: a claim policy decides what is next and when to exit, attempts carry it out, and
the settlement writes the results to the store. Agents use other parts, not another worker.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from hypervisor.queue.pause import BATCH, Pause
from hypervisor.queue.settle import remember_worker
from hypervisor.queue.sql import event_log
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.runs import sql
from hypervisor.runs.outputs.room import MIN_FREE_BYTES, no_room_text
from hypervisor.runs.unfenced import Unfenced

if TYPE_CHECKING:
    from typing import Any

    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Worker as Identity
    from hypervisor.runs.config import Settings
    from hypervisor.runs.outputs.files import Outputs
    from hypervisor.runs.processes.journal import Journal
    from hypervisor.runs.runner import Runner
    from hypervisor.runs.settlement import Settlement
    from hypervisor.runs.spec import RunSpec

LEASE_MS = 60_000
ROOM_CHECK = 0.1  # seconds between checks of the free space
MAX_REASON_LENGTH = 500

Work = TypeVar("Work")
Work_co = TypeVar("Work_co", covariant=True)
Work_contra = TypeVar("Work_contra", contravariant=True)


@dataclass(frozen=True)
class WorkerContext:
    """Shared by all parts of a worker. The store of `hv` retries (retrying_store.py)."""

    hv: Context
    me: Identity
    batch: str
    spec: RunSpec
    runner: Runner
    journal: Journal
    outputs: Outputs
    settings: Settings
    agent: str = ""  # the agent's profile; "" for commands and functions
    fence: Unfenced = field(default_factory=Unfenced)

    def pause_batch(self, reason: str, batch: str = "") -> None:
        pause = Pause(BATCH, batch or self.batch, reason[:MAX_REASON_LENGTH], self.me.name, 0)
        self.hv.store.write(pauses_sql.pause, pause, self.hv.now())

    def note(self, kind: str, data: dict[str, Any], task: str) -> None:
        """An event about a task of this batch."""
        self.hv.store.write_unsynced(
            event_log.note, kind, data, self.me.name, self.hv.now(), task=task, batch=self.batch
        )


class ClaimPolicy(Protocol[Work_co]):
    """What to work on next: a lease, or a session of a pull agent."""

    def next(self) -> Work_co | None: ...
    def attempt_ended(self) -> None:
        """Store results if it is time, perhaps together with the next claim."""
        ...

    def wait(self) -> bool:
        """Wait a moment, without work. False when it is time to exit."""
        ...


class Attempts(Protocol[Work_contra]):
    def run(self, work: Work_contra, /) -> None:
        """Run an attempt from its start to its result."""
        ...


class Worker(Generic[Work]):
    def __init__(
        self,
        ctx: WorkerContext,
        claims: ClaimPolicy[Work],
        attempts: Attempts[Work],
        settlement: Settlement,
    ) -> None:
        self.ctx, self.claims, self.attempts, self.settlement = ctx, claims, attempts, settlement
        self._room_seen = 0.0

    def run(self) -> None:
        """Work until the batch has nothing left to claim, or a signal ends the worker."""
        ctx = self.ctx
        now = ctx.hv.now()
        ctx.fence.start()
        ctx.hv.store.write_unsynced(
            sql.register, ctx.me, ctx.batch, ctx.agent, now, leased_by=ctx.fence.leased_by
        )
        remember_worker(ctx.hv.store, ctx.me.id, bool(ctx.agent))
        ctx.journal.clear()  # it exists from now on, and before the first claim
        try:
            while self.poll():
                pass
            self.settlement.release_held("the worker is shutting down")
            self.settlement.flush()
        finally:
            ctx.runner.close()
        ctx.outputs.close()
        ctx.hv.store.write_unsynced(sql.retire, ctx.me.id, ctx.hv.now())
        ctx.journal.remove()

    def poll(self) -> bool:
        """Run one attempt, or look for work. False when it is time to exit."""
        if self.ctx.runner.asked:
            return False
        if not self._has_room():
            return True
        if self.ctx.fence.renewed_since():
            self.settlement.release_held("the host was cut off from the store")
            self.settlement.flush()
        work = self.claims.next()
        if work is None:
            return self.claims.wait()
        self.attempts.run(work)
        self.claims.attempt_ended()
        return True

    def _has_room(self) -> bool:
        """Whether there is disk space for outputs; if not, release all tasks and wait."""
        if time.monotonic() < self._room_seen + ROOM_CHECK:
            return True
        if self.ctx.outputs.room() >= MIN_FREE_BYTES:
            self._room_seen = time.monotonic()
            return True
        self.settlement.release_held(no_room_text(self.ctx.hv.store.where))
        self.settlement.flush()
        self.ctx.runner.pause(1.0)
        return False
