"""What an attempt cost, and what a type of task needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.queue.lease import Lease, Usage
from hypervisor.runs.patience import if_possible

if TYPE_CHECKING:
    from hypervisor.queue.attempt import Ended
    from hypervisor.runs.worker import WorkerContext

SMALLEST_PEAK = 1 << 20


class UsageMeter:
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
                self._ctx.hv.store.set(f"peak {kind}", str(stored))
        self._peaks[kind] = (estimate, stored)
