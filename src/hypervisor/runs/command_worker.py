"""The worker that runs a command or calls a function for each task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput
from hypervisor.queue.lease import Lease
from hypervisor.queue.result import LARGEST_RESULT, result_in
from hypervisor.resources.overseer import Overseer
from hypervisor.runs.attempts import LeasedAttempts, complete
from hypervisor.runs.claims import BatchClaims
from hypervisor.runs.settlement import PartsOf, Settlement, UsageMeter
from hypervisor.runs.watch import LeaseCheck, OverseerCheck, Watch, signal_check
from hypervisor.runs.worker import LONGEST_REASON, Worker

if TYPE_CHECKING:
    from hypervisor.inputs.template import Item
    from hypervisor.queue.attempt import Ended
    from hypervisor.queue.context import Context
    from hypervisor.queue.task import Json
    from hypervisor.resources.limits import Limits
    from hypervisor.runs.spec import RunSpec, Stop
    from hypervisor.runs.worker import WorkerContext

ItemFor = Callable[["Context", Lease, "RunSpec"], "Item"]


def command_worker(
    ctx: WorkerContext, item_for: ItemFor, parts_of: PartsOf, capabilities: tuple[str, ...] = ()
) -> Worker[Lease]:
    """`item_for` makes what an attempt is given; `parts_of` names the batches that end with this
    one if it fails fast."""
    settlement, meter = Settlement(ctx, parts_of), UsageMeter(ctx)
    claims = BatchClaims(ctx, settlement, capabilities)
    kind = CommandAttempts(ctx, settlement, meter, item_for)
    return Worker(ctx, claims, LeasedAttempts(ctx, settlement, meter, kind), settlement)


class CommandAttempts:
    def __init__(
        self, ctx: WorkerContext, settlement: Settlement, meter: UsageMeter, item_for: ItemFor
    ) -> None:
        self.ctx, self.settlement, self.meter = ctx, settlement, meter
        self._item_for = item_for

    def start(self, lease: Lease, output: str) -> None:
        item = self._item_for(self.ctx.hv, lease, self.ctx.spec)
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

    def settle(self, lease: Lease, ended: Ended, peak: int) -> None:
        if self.ctx.runner.fatal_error:
            return self._give_up(lease, self.ctx.runner.fatal_error)
        usage = self.meter.usage_of(lease, ended, peak)
        if not ended.ok:
            return self.settlement.fail_or_retry(lease, ended.reason() or "failed", usage)
        try:
            result = self._printed(lease) if self.ctx.spec.result == "json" else ended.result
        except (ValueError, InvalidInput) as error:
            return self.settlement.fail_or_retry(lease, f"no result: {error}", usage)
        return complete(self.settlement, lease, result, usage)

    def stopped(self, lease: Lease, stop: Stop) -> None:
        pass

    def _printed(self, lease: Lease) -> Json:
        """What a command printed last, if that is JSON."""
        task, outputs = lease.task, self.ctx.outputs
        size = outputs.size(task.id, task.attempts) or 0
        tail = outputs.read(task.id, task.attempts, max(size - LARGEST_RESULT, 0), size)
        return result_in(tail)

    def _give_up(self, lease: Lease, reason: str) -> None:
        """Every other item would fail for the same reason: leave them as they are."""
        self.settlement.held.appendleft(lease)
        self.settlement.release_held(reason[:LONGEST_REASON])
        self.settlement.flush()
        self.ctx.pause_batch(reason)
