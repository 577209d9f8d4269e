"""Runs an attempt at a claimed task: prepare, start, wait, watch, settle.

The steps are the same for all kinds of work; command_worker.py has the details for commands and
functions, agents/attempts.py for agents.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from hypervisor.core import validate
from hypervisor.core.errors import STORE_LOST, InvalidInput, StoreError, StoreFull, WorkspaceError
from hypervisor.queue.attempt import Ended
from hypervisor.queue.lease import AttemptResult, Lease, Usage
from hypervisor.queue.result import receipts_in
from hypervisor.queue.sql.receipts import append_of_attempt
from hypervisor.resources.limits import Limits, merged
from hypervisor.runs.config import limits_from
from hypervisor.runs.retrying_store import if_possible, without_retry
from hypervisor.runs.settlement import Settlement, UsageMeter, token_of
from hypervisor.runs.workspaces import NotSetUp, StoppedEarly

if TYPE_CHECKING:
    from hypervisor.queue.stop import Stop
    from hypervisor.queue.task import Json, Task
    from hypervisor.runs.config import Settings
    from hypervisor.runs.spec import RunSpec
    from hypervisor.runs.watch import Watch
    from hypervisor.runs.worker import WorkerContext
    from hypervisor.runs.workspaces import Workspaces

GLANCE = 0.03  # seconds; after that, people may follow the output, and a file costs little
FIRST_LOOK = 0.25
LOOK = 1.0
MAX_IDLE = 3.0  # seconds that a connection to a database is kept while an attempt runs
MAX_HOST_ERRORS = 10  # in a row
MAX_SETUP_ERRORS = 3  # the same for setting up, which may take long
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class AttemptKind(Protocol):
    """The part that differs between commands or functions and agents."""

    def start(self, lease: Lease, output: str) -> None: ...
    def watch(self, lease: Lease, limits: Limits, started: float) -> Watch: ...
    def settle(self, lease: Lease, ended: Ended, peak: int, limits: Limits) -> None:
        """Decide what happens to the task, from how the attempt ended."""
        ...

    def stopped(self, lease: Lease, stop: Stop) -> None:
        """Called after the attempt was stopped and the task was settled."""
        ...


class LeasedAttempts:
    """Attempts at tasks that the worker has claimed, one at a time."""

    def __init__(
        self,
        ctx: WorkerContext,
        settlement: Settlement,
        meter: UsageMeter,
        kind: AttemptKind,
        default_limits: Limits = Limits(),  # noqa: B008 (a NamedTuple never changes)
        *,
        workspaces: Workspaces | None = None,
    ) -> None:
        self._workspaces = workspaces
        self.ctx, self.settlement, self.meter, self.kind = ctx, settlement, meter, kind
        self._default_limits = default_limits
        self._limits: dict[str, Limits] = {}
        self._host_errors = 0

    def run(self, lease: Lease) -> None:
        try:
            limits = self._start(lease)
        # An item that no command can be made for, bad limits, or no workspace for it.
        except (InvalidInput, WorkspaceError) as error:
            usage = self.meter.usage_of(lease, Ended(None, None, 0.0, 0), 0)
            return self.settlement.fail_or_retry(lease, str(error), usage)
        except StoppedEarly as early:
            return self._stop_early(lease, early.stop)
        except NotSetUp as error:
            return self._put_back(lease, error, MAX_SETUP_ERRORS)
        except STORE_LOST:
            raise
        except (OSError, StoreError) as error:
            return self._put_back(lease, error)
        self._host_errors = 0
        started = time.monotonic()
        ended = self._wait_briefly(lease)
        if ended is None:
            return self._watch(lease, limits, started)
        self._clear(lease)
        if cut := self.ctx.fence.leave():
            return self._stopped(lease, cut, ended, 0)
        self._keep_evidence(lease)
        self._close_workspace(lease)
        return self.kind.settle(lease, ended, 0, limits)

    def _stop_early(self, lease: Lease, stop: Stop) -> None:
        if self._workspaces is not None:
            self._workspaces.stopped(lease, stop)
        nothing = Ended(None, None, 0.0, 0)
        self.settlement.stop(lease, stop, lambda: self.meter.usage_of(lease, nothing, 0))

    def _start(self, lease: Lease) -> Limits:
        ctx, task = self.ctx, lease.task
        ctx.hv.store.check_present()
        limits = self.limits_of(task)
        output = ctx.outputs.prepare(task.id, task.attempts)
        ctx.journal.starting(lease.token)
        if ctx.spec.write_back == "status":
            ctx.hv.tasks_changed([task.id], spec=ctx.spec)
        self.kind.start(lease, output)
        return limits

    def limits_of(self, task: Task) -> Limits:
        spec, settings = self.ctx.spec, self.ctx.settings
        if isinstance(task.data, dict) and "limits" in task.data:
            return merged(limits_of(task, spec, settings), self._default_limits)
        if task.type not in self._limits:
            limits = merged(limits_of(task, spec, settings), self._default_limits)
            self._limits[task.type] = limits
        return self._limits[task.type]

    def _wait_briefly(self, lease: Lease) -> Ended | None:
        ended = self.ctx.runner.wait(GLANCE)
        if ended is None:
            self.ctx.outputs.takes_long(lease.task.id, lease.task.attempts)
            ended = self.ctx.runner.wait(FIRST_LOOK - GLANCE)
        return ended

    def _watch(self, lease: Lease, limits: Limits, started: float) -> None:
        """A long attempt: release the other claimed tasks, and watch it."""
        runner = self.ctx.runner
        note_leader(self.ctx)
        self.settlement.release_held("the worker is busy with another task")
        runner.settle_in()
        watch = self.kind.watch(lease, limits, started)
        outcome = watch_until_end(self.ctx, watch, lambda: self._meanwhile(lease))
        if isinstance(outcome, Ended):
            self._clear(lease)
            ended = outcome
        else:
            ended = runner.stop(self.ctx.settings.grace)
        if cut := self.ctx.fence.leave():
            return self._stopped(lease, cut, ended, watch.peak)
        if isinstance(outcome, Ended) or outcome.next == "classify":
            self._keep_evidence(lease)
            self._close_workspace(lease)
            return self.kind.settle(lease, ended, watch.peak, limits)
        return self._stopped(lease, outcome, ended, watch.peak)

    def _stopped(self, lease: Lease, stop: Stop, ended: Ended, peak: int) -> None:
        self._keep_evidence(lease)
        if self._workspaces is not None:
            self._workspaces.stopped(lease, stop)
        self.settlement.stop(lease, stop, lambda: self.meter.usage_of(lease, ended, peak))
        self.kind.stopped(lease, stop)

    def _meanwhile(self, lease: Lease) -> None:
        self.settlement.flush_if_possible()
        if self._workspaces is not None:
            self._workspaces.look(lease, time.monotonic())

    def _close_workspace(self, lease: Lease) -> None:
        """Before the end of the attempt is written down."""
        if self._workspaces is not None:
            self._workspaces.closed(lease)

    def _keep_evidence(self, lease: Lease) -> None:
        """How the attempt was confined, and what it was refused."""
        if lines := self.ctx.runner.evidence():
            store, actor = self.ctx.hv.store, self.ctx.me.name
            claim = (lease.task.id, lease.task.attempts)
            with if_possible(self.ctx.hv):
                store.write(append_of_attempt, claim, actor, list(lines), store.now())

    def _clear(self, lease: Lease) -> None:
        if left := self.ctx.runner.clear(self.ctx.settings.grace):
            noun = "process" if left == 1 else "processes"
            data = {"processes": left, "message": f"stopped {left} {noun} left running"}
            with if_possible(self.ctx.hv):  # the result of the attempt comes first
                self.ctx.note("leftovers", data, lease.task.id)

    def _put_back(
        self,
        lease: Lease,
        error: OSError | StoreError | NotSetUp,
        max_errors: int = MAX_HOST_ERRORS,
    ) -> None:
        """The host could not start it: release the task, without counting a failure."""
        ctx = self.ctx
        reason = f"cannot start on this host: {getattr(error, 'strerror', None) or error}"
        self.settlement.held.appendleft(lease)
        self.settlement.release_held(reason)
        self.settlement.flush()
        with if_possible(ctx.hv):
            ctx.note("trouble", {"message": reason}, lease.task.id)
        has_room = not isinstance(error, StoreFull) and getattr(error, "errno", 0) not in NO_ROOM
        if has_room:  # a full disk: work continues by itself once there is room
            self._host_errors += 1
            if self._host_errors >= max_errors:
                ctx.pause_batch(reason)
        ctx.runner.pause(1.0)


def complete(
    settlement: Settlement, lease: Lease, result: Json, usage: Usage, proposals: bool = False
) -> None:
    """Complete a task, or fail it if its result cannot be stored."""
    receipts: tuple[str, ...] = ()
    if result is not None:
        try:
            validate.json_value("the result", result)
        except InvalidInput as error:
            return settlement.fail_or_retry(lease, f"no result: {error}", usage)
        receipts = receipts_in(result)
    settlement.record_file(lease)
    return settlement.add(
        AttemptResult(
            token_of(lease), "complete", result, None, None, None, usage, receipts, proposals
        )
    )


def note_leader(ctx: WorkerContext) -> None:
    """Record the first process of a long attempt, for recovery after a crash."""
    if pid := ctx.runner.leader:
        ctx.journal.leader(pid, ctx.hv.probe.process_start(pid) or 0)


def watch_until_end(
    ctx: WorkerContext, watch: Watch, meanwhile: Callable[[], None] = lambda: None
) -> Ended | Stop:
    """How the attempt ended, or why it must be stopped."""
    with without_retry(ctx.hv):
        while True:
            meanwhile()
            if stop := ctx.fence.cut() or watch.look(time.monotonic()):
                return stop
            if ctx.fence.leased_by:
                ctx.hv.store.hang_up(MAX_IDLE)
            if ended := ctx.runner.wait(LOOK):
                return ended


def limits_of(task: Task, spec: RunSpec, settings: Settings) -> Limits:
    """Limits in a task's data come first, then those of the batch, the type and the defaults."""
    own = task.data.get("limits") if isinstance(task.data, dict) else None
    per_type = settings.limits_by_type.get(task.type, Limits())
    return merged(limits_from(own or {}), spec.limits, per_type, settings.limits)
