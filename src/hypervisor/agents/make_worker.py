"""Puts together a worker that runs an agent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hypervisor.agents.account import account_of
from hypervisor.agents.agent_worker import agent_worker
from hypervisor.agents.budget import price_of
from hypervisor.agents.context import AgentContext
from hypervisor.agents.homes import worker_home
from hypervisor.agents.mcp_config import worker_access
from hypervisor.agents.prompts import FOLDER, Prompts
from hypervisor.agents.runner import AgentRunner
from hypervisor.agents.setup import setup_for
from hypervisor.core.errors import InvalidInput
from hypervisor.runs.processes.environment import attempt_variables
from hypervisor.runs.processes.launcher import mark_of

if TYPE_CHECKING:
    from hypervisor.runs.make_worker import WorkerStart
    from hypervisor.runs.settlement import PartsOf
    from hypervisor.runs.worker import Worker


def make_agent_worker(start: WorkerStart, name: str, parts_of: PartsOf) -> Worker[Any]:
    """A worker that runs an agent on tasks it claims, or an agent that claims by itself."""
    hv, spec, settings = start.hv, start.spec, start.hv.settings
    if name not in settings.agents:
        raise InvalidInput(f"there is no agent {name!r} in config.toml any more.")
    profile = settings.agents[name]
    store = os.environ.get("HYPERVISOR_STORE") or hv.store.where
    mcp = worker_access(profile, spec, start.batch, store, start.me)
    runner = AgentRunner(
        setup_for(profile, spec, start.given, mcp),
        hv.homes,
        attempt_variables(spec, start.batch, hv.launcher.places.locks),
        own_home=worker_home(start.me),
        mark=mark_of(start.me),
        group=start.group,
        niceness=settings.nice,
    )
    known = {name, *spec.agents} & set(settings.agents)
    agent = AgentContext(
        start.context(runner, hv.outputs, name),
        runner=runner,
        profile=profile,
        accounts={each: account_of(settings.agents[each], start.given) for each in known},
        homes=hv.homes,
        prompts=Prompts(spec, FOLDER),
        price=price_of(profile, spec.model, settings.prices),
    )
    return agent_worker(agent, parts_of)
