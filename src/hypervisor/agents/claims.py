"""When an agent is started, and on what: by its worker's claim, or to claim by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.agents.session import NewSession
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import ClaimRequest, Lease
from hypervisor.runs.claims import Declared, IdleTimer
from hypervisor.runs.worker import LEASE_MS

if TYPE_CHECKING:
    from hypervisor.agents.context import AgentContext
    from hypervisor.runs.settlement import Settlement


class StartGate:
    """Whether an agent may be started now."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._idle = IdleTimer(agent.worker)
        self._declared = Declared(agent.worker)
        self._is_cooling = self._is_over = False

    def is_open(self) -> bool:
        agent = self._agent
        if agent.runner.hopeless:
            agent.worker.pause_batch(agent.runner.hopeless)
            self._is_over = True
        elif not self._declared.is_current():
            self._is_over = True
        if self._is_over:
            return False
        self._is_cooling = agent.cooldowns.is_cooling(agent.account)
        return not self._is_cooling and not agent.budget.is_empty()

    def started(self) -> None:
        self._idle.since = None

    def wait(self) -> bool:
        """A worker without budget leaves at once: only the next one knows of a raised budget. So
        does one whose account is cooling down: after that, one agent tries first, not all."""
        if self._is_over or not self._idle.wait():
            return False
        return not (self._agent.budget.is_closed or self._is_cooling)


class PushClaims:
    """One task at a time, for an agent that gets it in its prompt."""

    def __init__(self, agent: AgentContext, settlement: Settlement) -> None:
        self._agent, self._settlement = agent, settlement
        self._gate = StartGate(agent)

    def next(self) -> Lease | None:
        worker, held = self._agent.worker, self._settlement.held
        if not held and self._gate.is_open():
            wanted = ClaimFilter(batch=worker.batch, capabilities=self._agent.capabilities())
            self._settlement.claim(ClaimRequest(worker.me, 1, LEASE_MS, wanted))
        if not held or worker.runner.asked:
            return None
        self._gate.started()
        return held.popleft()

    def attempt_ended(self) -> None:
        self._settlement.flush()

    def wait(self) -> bool:
        return self._gate.wait()


class PullClaims:
    """A run of an agent that claims by itself, whenever there is something for it to claim."""

    def __init__(self, agent: AgentContext, settlement: Settlement) -> None:
        self._agent, self._settlement = agent, settlement
        self._gate = StartGate(agent)

    def next(self) -> NewSession | None:
        if not self._gate.is_open() or not self._has_work():
            return None
        self._gate.started()
        agent = self._agent
        return NewSession(agent.name, agent.account, agent.worker.batch, agent.worker.me.id)

    def attempt_ended(self) -> None:
        self._settlement.flush()

    def wait(self) -> bool:
        return self._gate.wait()

    def _has_work(self) -> bool:
        worker = self._agent.worker
        ready = worker.hv.store.ready(self._agent.capabilities())
        return any(each.batch == worker.batch for each in ready)
