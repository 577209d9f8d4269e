"""The worker that runs a command or calls a function for each task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput
from hypervisor.queue.lease import Lease
from hypervisor.queue.result import MAX_RESULT_SIZE, result_in
from hypervisor.resources.limits import Limits, Sample
from hypervisor.resources.overseer import Overseer
from hypervisor.runs.attempts import LeasedAttempts, complete
from hypervisor.runs.claims import BatchClaims
from hypervisor.runs.settlement import PartsOf, Settlement, UsageMeter, token_of
from hypervisor.runs.spec import AgentSpec
from hypervisor.runs.watch import LeaseCheck, OverseerCheck, Watch, signal_check
from hypervisor.runs.worker import MAX_REASON_LENGTH, Worker
from hypervisor.runs.workspaces import forgetting, workspaces_for

if TYPE_CHECKING:
    from hypervisor.inputs.template import Item
    from hypervisor.queue.attempt import Ended
    from hypervisor.queue.context import Context
    from hypervisor.queue.stop import Stop
    from hypervisor.queue.task import Json
    from hypervisor.runs.spec import RunSpec
    from hypervisor.runs.worker import WorkerContext
    from hypervisor.runs.workspaces import Workspaces

ItemFor = Callable[["Context", Lease, "RunSpec"], "Item"]


def command_worker(
    ctx: WorkerContext, item_for: ItemFor, parts_of: PartsOf, capabilities: tuple[str, ...] = ()
) -> Worker[Lease]:
    """`item_for` makes the item for an attempt; `parts_of` returns the batches that fail-fast
    pauses together with this one."""
    workspaces = workspaces_for(ctx)
    settlement = Settlement(ctx, parts_of, after_flush=forgetting(workspaces))
    meter = UsageMeter(ctx)
    claims = BatchClaims(ctx, settlement, capabilities)
    kind = CommandAttempts(ctx, settlement, meter, item_for, workspaces)
    attempts = LeasedAttempts(ctx, settlement, meter, kind, workspaces=workspaces)
    return Worker(ctx, claims, attempts, settlement)


class CommandAttempts:
    def __init__(
        self,
        ctx: WorkerContext,
        settlement: Settlement,
        meter: UsageMeter,
        item_for: ItemFor,
        workspaces: Workspaces | None = None,
    ) -> None:
        self._workspaces = workspaces
        self.ctx, self.settlement, self.meter = ctx, settlement, meter
        self._item_for = item_for
        work = ctx.spec.work
        self._prints_result = not isinstance(work, AgentSpec) and work.result == "json"

    def start(self, lease: Lease, output: str) -> None:
        item = self._item_for(self.ctx.hv, lease, self.ctx.spec)
        if self._workspaces is not None:
            opened = self._workspaces.open(lease, self.ctx.spec.git.continues)
            self.ctx.runner.work_in(opened.folder, opened.env, opened.copy)
            item = opened.item_here(item, self.ctx.spec.cwd)
        self.ctx.fence.enter(lease)
        self.ctx.runner.start(item, lease.token, output)

    def watch(self, lease: Lease, limits: Limits, started: float) -> Watch:
        ctx, check = self.ctx, LeaseCheck(self.ctx, lease, started)
        overseer = Overseer(limits, ctx.settings.dry_run)
        output = (lease.task.id, lease.task.attempts)
        return Watch(
            [signal_check(ctx)],
            [check.requested, check.lost],
            OverseerCheck(ctx, output, overseer, started=started),
        )

    def settle(self, lease: Lease, ended: Ended, peak: int, limits: Limits) -> None:
        if self.ctx.runner.fatal_error:
            return self._give_up(lease, self.ctx.runner.fatal_error)
        usage = self.meter.usage_of(lease, ended, peak)
        if not ended.ok:
            return self.settlement.fail_or_retry(lease, ended.reason() or "failed", usage)
        if limits.output and (usage.output_bytes or 0) >= limits.output:
            # It may have printed this much before anyone looked, or since.
            overseer = Overseer(Limits(output=limits.output), self.ctx.settings.dry_run)
            output = OverseerCheck(self.ctx, token_of(lease)[:2], overseer, started=0)
            if stop := output.judge(Sample(0, 0.0, 0, 0, usage.output_bytes or 0)):
                return self.settlement.fail_or_retry(lease, stop.reason, usage)
        try:
            result = self._printed(lease) if self._prints_result else ended.result
        except (ValueError, InvalidInput) as error:
            return self.settlement.fail_or_retry(lease, f"no result: {error}", usage)
        return complete(self.settlement, lease, result, usage)

    def stopped(self, lease: Lease, stop: Stop) -> None:
        pass

    def _printed(self, lease: Lease) -> Json:
        """The JSON result at the end of the output."""
        task, outputs = lease.task, self.ctx.outputs
        size = outputs.local_size(task.id, task.attempts) or 0
        tail = outputs.read(task.id, task.attempts, max(size - MAX_RESULT_SIZE, 0), size)
        return result_in(tail)

    def _give_up(self, lease: Lease, reason: str) -> None:
        """Every other item would fail for the same reason: put them back and pause the batch."""
        self.settlement.held.appendleft(lease)
        self.settlement.release_held(reason[:MAX_REASON_LENGTH])
        self.settlement.flush()
        self.ctx.pause_batch(reason)
