"""The worker whose attempts are sessions of an agent.

A rate limit applies to all agents of the account; a used-up budget pauses the batch.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hypervisor.agents.apply_outcome import OutcomeSettlement
from hypervisor.agents.attempts import AgentAttempts
from hypervisor.agents.claims import AgentClaims, claim_task, new_session
from hypervisor.agents.watch import DEFAULT_LIMITS
from hypervisor.batches.plans.propose import forget_proposals
from hypervisor.core.errors import StoreError
from hypervisor.queue.lifecycle import TERMINAL
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.attempts import LeasedAttempts
from hypervisor.runs.settlement import PartsOf, Settlement, UsageMeter
from hypervisor.runs.worker import Worker
from hypervisor.runs.workspaces import forgetting, workspaces_for

if TYPE_CHECKING:
    from hypervisor.agents.context import AgentContext
    from hypervisor.agents.homes import AgentHomes
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import AttemptResult
    from hypervisor.runs.workspaces import Workspaces


def agent_worker(agent: AgentContext, parts_of: PartsOf) -> Worker[Any]:
    """A worker that claims for its agent (push), or whose agent claims by itself (pull)."""
    ctx = agent.worker
    workspaces = workspaces_for(ctx)
    homes = HomeCleanup(ctx.hv, agent.homes, keep=bool(ctx.spec.git.merge), workspaces=workspaces)
    homes.remove_stale()
    settlement = Settlement(
        ctx, parts_of, after_flush=homes.after_flush, after_cancel=homes.remove_if_ended
    )
    meter = UsageMeter(ctx)
    if agent.spec.mode == "pull":
        from hypervisor.agents.pull_attempts import PullAttempts

        pulls = PullAttempts(agent, settlement, meter)
        return Worker(ctx, AgentClaims(agent, settlement, new_session), pulls, settlement)
    kind = AgentAttempts(agent, meter, OutcomeSettlement(agent, settlement, homes), workspaces)
    attempts = LeasedAttempts(ctx, settlement, meter, kind, DEFAULT_LIMITS, workspaces=workspaces)
    return Worker(ctx, AgentClaims(agent, settlement, claim_task), attempts, settlement)


class HomeCleanup:
    """Deletes homes and proposals that are no longer needed."""

    def __init__(
        self,
        hv: Context,
        homes: AgentHomes,
        *,
        keep: bool = False,
        workspaces: Workspaces | None = None,
    ) -> None:
        """`keep`: what is completed may come back, to be continued by the same session."""
        self._hv, self._homes, self._keep = hv, homes, keep
        self._forget_workspaces = forgetting(workspaces)

    def after_flush(self, results: list[AttemptResult]) -> None:
        with suppress(StoreError):  # leftovers do no harm
            for result in results:
                forget_proposals(self._hv, str(result.token))
        self._forget_workspaces(results)
        for result in results:
            if result.event == "fail" or (result.event == "complete" and not self._keep):
                self._homes.remove(result.token.task)

    def remove_if_ended(self, task: str) -> None:
        """After another process settled the task: delete its home unless the task may continue."""
        with suppress(StoreError):
            if self._hv.store.read(runs_sql.states, [task]).get(task) in TERMINAL:
                self._homes.remove(task)

    def remove_stale(self) -> None:
        """Delete homes of tasks that ended without a worker, and of dead workers."""
        names = list(self._homes.all())
        tasks = [name for name in names if name.isalnum()]
        states = self._hv.store.read(runs_sql.states, tasks) if tasks else {}
        ended = [name for name in tasks if states.get(name) in TERMINAL]
        for name in ended + [name for name in names if self._is_of_dead_worker(name)]:
            self._homes.remove(name)

    def _is_of_dead_worker(self, name: str) -> bool:
        """The home of a pull agent is named after its worker: PID-START."""
        pid, _, start = name.partition("-")
        if not (pid.isdecimal() and start.isdecimal()):
            return False
        return self._hv.probe.process_start(int(pid)) != int(start)
