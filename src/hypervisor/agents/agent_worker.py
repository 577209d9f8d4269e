"""The worker whose attempts are runs of an agent.

What one meets concerns all: a rate limit makes every agent of the account wait, a used-up budget
pauses the batch.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hypervisor.agents.apply_outcome import OutcomeSettlement
from hypervisor.agents.attempts import AgentAttempts
from hypervisor.agents.claims import AgentClaims, claim_task, new_session
from hypervisor.agents.pull_attempts import PullAttempts
from hypervisor.agents.watch import DEFAULT_LIMITS
from hypervisor.batches.plans.propose import forget_proposals
from hypervisor.core.errors import StoreError
from hypervisor.queue.lifecycle import TERMINAL
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.attempts import LeasedAttempts
from hypervisor.runs.settlement import PartsOf, Settlement, UsageMeter
from hypervisor.runs.worker import Worker

if TYPE_CHECKING:
    from hypervisor.agents.context import AgentContext
    from hypervisor.agents.homes import AgentHomes
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import AttemptResult


def agent_worker(agent: AgentContext, parts_of: PartsOf) -> Worker[Any]:
    """A worker that claims for its agent (push), or whose agent claims by itself (pull)."""
    ctx = agent.worker
    homes = HomeCleanup(ctx.hv, agent.homes)
    homes.remove_stale()
    settlement = Settlement(
        ctx, parts_of, after_flush=homes.after_flush, after_cancel=homes.remove_if_ended
    )
    meter = UsageMeter(ctx)
    if ctx.spec.mode == "pull":
        pulls = PullAttempts(agent, settlement, meter)
        return Worker(ctx, AgentClaims(agent, settlement, new_session), pulls, settlement)
    kind = AgentAttempts(agent, meter, OutcomeSettlement(agent, settlement, homes))
    attempts = LeasedAttempts(ctx, settlement, meter, kind, DEFAULT_LIMITS)
    return Worker(ctx, AgentClaims(agent, settlement, claim_task), attempts, settlement)


class HomeCleanup:
    """What is kept of agents goes once nobody can need it: homes and proposals."""

    def __init__(self, hv: Context, homes: AgentHomes) -> None:
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
            if self._hv.store.read(runs_sql.states, [task]).get(task) in TERMINAL:
                self._homes.remove(task)

    def remove_stale(self) -> None:
        """Homes of tasks that were ended while nobody worked on them, and of dead workers."""
        names = list(self._homes.all())
        tasks = [name for name in names if name.isalnum()]
        states = self._hv.store.read(runs_sql.states, tasks) if tasks else {}
        ended = [name for name in tasks if states.get(name) in TERMINAL]
        for name in ended + [name for name in names if self._is_of_dead_worker(name)]:
            self._homes.remove(name)

    def _is_of_dead_worker(self, name: str) -> bool:
        """An agent that claims by itself has the home of its worker: PID-START."""
        pid, _, start = name.partition("-")
        if not (pid.isdecimal() and start.isdecimal()):
            return False
        return self._hv.probe.process_start(int(pid)) != int(start)
