"""When an agent is started: with a task that its worker has claimed, or to claim tasks itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from hypervisor.queue.agent_session import NewSession
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import ClaimRequest, Lease
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.claims import Declared, IdleTimer
from hypervisor.runs.worker import LEASE_MS

if TYPE_CHECKING:
    from hypervisor.agents.context import AgentContext
    from hypervisor.agents.gateway.access import GatewayAccess
    from hypervisor.runs.settlement import Settlement

Work = TypeVar("Work")
GATEWAY_PATIENCE = 15.0  # seconds


class AgentClaims(Generic[Work]):
    """Calls `find` for work whenever an agent may be started."""

    def __init__(
        self,
        agent: AgentContext,
        settlement: Settlement,
        find: Callable[[AgentContext, Settlement], Work | None],
    ) -> None:
        self._agent, self._settlement, self._find = agent, settlement, find
        self._idle, self._declared = IdleTimer(agent.worker), Declared(agent.worker)
        self._is_cooling = self._is_over = False

    def next(self) -> Work | None:
        work = self._find(self._agent, self._settlement) if self._may_start() else None
        if work is not None:
            self._idle.since = None
        return work

    def _may_start(self) -> bool:
        agent = self._agent
        if agent.runner.fatal_error:
            agent.worker.pause_batch(agent.runner.fatal_error)
            self._is_over = True
        if self._is_over or not self._declared.is_current():
            self._is_over = True
            return False
        self._is_cooling = agent.cooldowns.is_cooling(agent.account)
        if self._is_cooling or agent.budget.is_empty():
            return False
        return agent.gateway is None or self._is_up(agent.gateway)

    def _is_up(self, gateway: GatewayAccess) -> bool:
        """The supervisor opens its port once it has seen this worker."""
        runner, until = self._agent.worker.runner, time.monotonic() + GATEWAY_PATIENCE
        while not gateway.is_ready():
            if runner.asked or time.monotonic() >= until:
                return False
            runner.pause(0.1)
        return True

    def attempt_ended(self) -> None:
        self._settlement.flush()

    def wait(self) -> bool:
        """A worker without budget exits at once: only a new one notices a raised budget. So does
        one whose account is cooling down: after that, a single agent goes first."""
        if self._is_over or not self._idle.wait():
            return False
        return not (self._agent.budget.is_closed or self._is_cooling)


def claim_task(agent: AgentContext, settlement: Settlement) -> Lease | None:
    """Push: one task at a time, which the agent gets in its prompt."""
    worker, held = agent.worker, settlement.held
    filter = ClaimFilter(batch=worker.batch, capabilities=agent.capabilities())
    settlement.claim(ClaimRequest(worker.me, 1, LEASE_MS, filter))
    return held.popleft() if held and not worker.runner.asked else None


def new_session(agent: AgentContext, settlement: Settlement) -> NewSession | None:
    """Pull: a session of an agent that claims tasks itself, if there are any."""
    worker = agent.worker
    ready = worker.hv.store.read(runs_sql.ready, agent.capabilities())
    if not any(batch.batch == worker.batch for batch in ready):
        return None
    return NewSession(agent.name, agent.account, worker.batch, worker.me.id)
