"""Shared by the parts of an agent's worker, in addition to WorkerContext."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hypervisor.agents.budget_guard import BudgetGuard
from hypervisor.agents.rate_limits import CooldownGuard
from hypervisor.core.errors import NotFound, StoreError
from hypervisor.queue.sql import claims
from hypervisor.runs.spec import agent_of

if TYPE_CHECKING:
    from hypervisor.agents.gateway.access import GatewayAccess
    from hypervisor.agents.gateway.admission import Refusal
    from hypervisor.agents.homes import AgentHomes
    from hypervisor.agents.profile import AgentProfile, Price
    from hypervisor.agents.prompts import Prompts
    from hypervisor.agents.runner import AgentRunner
    from hypervisor.queue.lease import Token
    from hypervisor.runs.spec import AgentSpec
    from hypervisor.runs.worker import WorkerContext


@dataclass(frozen=True)
class AgentContext:
    worker: WorkerContext
    runner: AgentRunner
    profile: AgentProfile
    accounts: Mapping[str, str]  # of all agents of the batch, by name
    homes: AgentHomes
    prompts: Prompts
    price: Price | None = None
    gateway: GatewayAccess | None = None  # None: the agent calls its model itself

    @property
    def name(self) -> str:
        return self.profile.name

    @property
    def spec(self) -> AgentSpec:
        return agent_of(self.worker.spec)

    @property
    def account(self) -> str:
        return self.accounts[self.profile.name]

    @cached_property
    def cooldowns(self) -> CooldownGuard:
        return CooldownGuard(self.worker.hv.store, self.account, self.worker.me.name)

    @cached_property
    def budget(self) -> BudgetGuard:
        worker = self.worker
        return BudgetGuard(
            worker.hv.store, worker.batch, self.spec, worker.hv.agent_settings, worker.me.name
        )

    def capabilities(self) -> tuple[str, ...]:
        """The agent's own; as the fallback, also those of agents whose account is cooling down."""
        agents = [self.name]
        if self.name == self.spec.fallback:
            accounts = self.accounts.items()
            agents += [name for name, account in accounts if self.cooldowns.is_cooling(account)]
        labels = [f"agent:{name}" for name in agents]
        own = (*self.worker.settings.capabilities, *self.profile.capabilities, *labels)
        return tuple(dict.fromkeys(own))

    def refusal(self, session: str) -> Refusal | None:
        """Why the gateway refused the last call of a session, if it did."""
        if self.gateway is None:
            return None
        from hypervisor.agents.gateway.admission import Refusal
        from hypervisor.agents.sql import spending

        try:
            refused = self.worker.hv.store.read(spending.refusal, session)
        except StoreError:
            return None
        return Refusal._make(refused) if refused else None

    def ended_claim(self, token: Token) -> str | None:
        """How the attempt ended according to the store; None if it has not."""
        try:
            return self.worker.hv.store.read(claims.ended_claim, token)
        except (StoreError, NotFound):  # a result for an ended claim changes nothing
            return None
