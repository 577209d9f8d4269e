"""What is kept of agents goes once nobody can need it: homes and proposals."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.batches.plans.propose import forget_proposals
from hypervisor.core.errors import StoreError
from hypervisor.queue.lifecycle import TERMINAL

if TYPE_CHECKING:
    from hypervisor.agents.context import Homes
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import AttemptResult


class HomeCleanup:
    def __init__(self, hv: Context, homes: Homes) -> None:
        self._hv, self._homes = hv, homes

    def after_flush(self, results: list[AttemptResult]) -> None:
        with suppress(StoreError):  # what is left over does no harm
            for result in results:
                forget_proposals(self._hv, str(result.token))
        for result in results:
            if result.event in ("complete", "fail"):
                self._homes.remove(result.token.task)

    def remove_if_ended(self, task: str) -> None:
        """Somebody else has settled the task: its home goes unless the task may go on."""
        with suppress(StoreError):
            if self._hv.store.states([task]).get(task) in TERMINAL:
                self._homes.remove(task)

    def remove_stale(self) -> None:
        """Homes of tasks that were ended while nobody worked on them, and of dead workers."""
        names = list(self._homes.all())
        tasks = [name for name in names if name.isalnum()]
        states = self._hv.store.states(tasks) if tasks else {}
        ended = [name for name in tasks if states.get(name) in TERMINAL]
        for name in ended + [name for name in names if self._is_of_dead_worker(name)]:
            self._homes.remove(name)

    def _is_of_dead_worker(self, name: str) -> bool:
        """An agent that claims by itself has the home of its worker: PID-START."""
        pid, _, start = name.partition("-")
        if not (pid.isdecimal() and start.isdecimal()):
            return False
        return self._hv.probe.process_start(int(pid)) != int(start)
