"""The worker: claims tasks of one batch, runs each attempt, settles.

It is put together from three parts: a claim policy says what is next and when to leave, attempts
carry it out, and the settlement takes what has ended to the store. Agents bring other parts, not
another worker.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from hypervisor.queue.settle import remember_worker
from hypervisor.queue.sql import event_log
from hypervisor.runs import sql
from hypervisor.runs.spec import BATCH, LEAST_ROOM, Pause, no_room_text

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
ROOM_CHECK = 0.1  # seconds between two looks at the free space
LONGEST_REASON = 500

Work = TypeVar("Work")
Work_co = TypeVar("Work_co", covariant=True)
Work_contra = TypeVar("Work_contra", contravariant=True)


@dataclass(frozen=True)
class WorkerContext:
    """What all parts of a worker use. The store of `hv` waits out an outage (retrying_store.py)."""

    hv: Context
    me: Identity
    batch: str
    spec: RunSpec
    runner: Runner
    journal: Journal
    outputs: Outputs
    settings: Settings
    agent: str = ""  # the profile that works on the tasks, where it is an agent that does

    def pause_batch(self, reason: str, batch: str = "") -> None:
        pause = Pause(BATCH, batch or self.batch, reason[:LONGEST_REASON], self.me.name, 0)
        self.hv.store.write(sql.pause, pause, self.hv.now())

    def note(self, kind: str, data: dict[str, Any], task: str) -> None:
        """An event about a task of this batch."""
        self.hv.store.write_unsynced(
            event_log.note, kind, data, self.me.name, self.hv.now(), task=task, batch=self.batch
        )


class ClaimPolicy(Protocol[Work_co]):
    """What to work on next: a lease, or a run of an agent that claims by itself."""

    def next(self) -> Work_co | None: ...
    def attempt_ended(self) -> None:
        """Take what has ended to the store if it is time, perhaps together with the next claim."""
        ...

    def wait(self) -> bool:
        """There is nothing to do: wait a moment. False when it is time to leave."""
        ...


class Attempts(Protocol[Work_contra]):
    def run(self, work: Work_contra, /) -> None:
        """From the start of an attempt to its result."""
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
        """Work until the batch has nothing more to claim, or a signal asks for an end."""
        ctx = self.ctx
        now = ctx.hv.now()
        ctx.hv.store.write_unsynced(sql.register, ctx.me, ctx.batch, ctx.agent, now)
        remember_worker(ctx.hv.store, ctx.me.id, bool(ctx.agent))
        ctx.journal.clear()  # it exists from now on, and before the first claim
        try:
            while self.poll():
                pass
            self.settlement.release_held("the worker ends")
            self.settlement.flush()
        finally:
            ctx.runner.close()
        ctx.outputs.close()
        ctx.hv.store.write_unsynced(sql.retire, ctx.me.id, ctx.hv.now())
        ctx.journal.remove()

    def poll(self) -> bool:
        """One attempt, or a look for work. False when it is time to leave."""
        if self.ctx.runner.asked:
            return False
        if not self._has_room():
            return True
        work = self.claims.next()
        if work is None:
            return self.claims.wait()
        self.attempts.run(work)
        self.claims.attempt_ended()
        return True

    def _has_room(self) -> bool:
        """Whether what an attempt prints can be kept; if not, wait for room, and hold nothing."""
        if time.monotonic() < self._room_seen + ROOM_CHECK:
            return True
        if self.ctx.outputs.room() >= LEAST_ROOM:
            self._room_seen = time.monotonic()
            return True
        self.settlement.release_held(no_room_text(self.ctx.hv.store.where))
        self.settlement.flush()
        self.ctx.runner.pause(1.0)
        return False
