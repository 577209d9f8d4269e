"""The worker whose attempts are runs of an agent.

What one meets concerns all: a rate limit makes every agent of the account wait, a used-up budget
pauses the batch.
"""

from __future__ import annotations

from typing import Any

from hypervisor.agents.apply_outcome import OutcomeSettlement
from hypervisor.agents.attempts import AgentAttempts
from hypervisor.agents.claims import PullClaims, PushClaims
from hypervisor.agents.cleanup import HomeCleanup
from hypervisor.agents.context import AgentContext
from hypervisor.agents.pull_attempts import PullAttempts
from hypervisor.agents.watch import DEFAULT_LIMITS
from hypervisor.runs.attempts import LeasedAttempts
from hypervisor.runs.settlement import PartsOf, Settlement
from hypervisor.runs.usage import UsageMeter
from hypervisor.runs.worker import Worker


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
        return Worker(ctx, PullClaims(agent, settlement), pulls, settlement)
    kind = AgentAttempts(agent, meter, OutcomeSettlement(agent, settlement, homes))
    attempts = LeasedAttempts(ctx, settlement, meter, kind, DEFAULT_LIMITS)
    return Worker(ctx, PushClaims(agent, settlement), attempts, settlement)
