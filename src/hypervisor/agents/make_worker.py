"""Makes a worker that runs an agent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hypervisor.agents.agent_worker import agent_worker
from hypervisor.agents.budget import price_of
from hypervisor.agents.context import AgentContext
from hypervisor.agents.gateway.access import gateway_access
from hypervisor.agents.homes import worker_home
from hypervisor.agents.mcp_config import worker_access
from hypervisor.agents.profile import account_of
from hypervisor.agents.prompts import FOLDER, Prompts
from hypervisor.agents.runner import AgentRunner
from hypervisor.agents.setup import setup_for
from hypervisor.core.errors import InvalidInput
from hypervisor.runs.make_worker import sandbox_of
from hypervisor.runs.processes.environment import attempt_variables
from hypervisor.runs.processes.launcher import mark_of
from hypervisor.runs.spec import agent_of
from hypervisor.runs.telemetry_settings import telemetry_of

if TYPE_CHECKING:
    from hypervisor.agents.setup import AgentSetup
    from hypervisor.runs.make_worker import WorkerStart
    from hypervisor.runs.settlement import PartsOf
    from hypervisor.runs.worker import Worker


def make_agent_worker(start: WorkerStart, name: str, parts_of: PartsOf) -> Worker[Any]:
    """A worker that runs an agent on tasks it claims (push), or whose agent claims (pull)."""
    return agent_worker(agent_context(start, name), parts_of)


def agent_setup(start: WorkerStart, name: str) -> AgentSetup:
    """How the agent of a batch is started. InvalidInput: it is no longer configured."""
    hv, spec, settings = start.hv, agent_of(start.spec), start.hv.agent_settings
    if name not in settings.profiles:
        raise InvalidInput(f"agent {name!r} is no longer in config.toml.")
    profile = settings.profiles[name]
    store = os.environ.get("HYPERVISOR_STORE") or hv.store.where
    mcp = worker_access(profile, spec, start.batch, store, start.me)
    return setup_for(profile, spec, start.folder, start.user_env, mcp)


def agent_context(start: WorkerStart, name: str) -> AgentContext:
    """What the parts of an agent's worker share."""
    hv, settings, setup = start.hv, start.hv.agent_settings, agent_setup(start, name)
    profile, spec = setup.profile, setup.spec
    runner = AgentRunner(
        setup,
        hv.homes,
        attempt_variables(start.spec, start.batch, hv.launcher.places.locks),
        own_home=worker_home(start.me),
        mark=mark_of(start.me),
        group=start.group,
        niceness=hv.settings.nice,
        tools_path=hv.outputs.tools_path
        if telemetry_of(hv.settings.telemetry, os.environ)
        else None,
        sandbox=sandbox_of(start, profile.sandbox),
    )
    names = {name, *spec.agents} & set(settings.profiles)
    return AgentContext(
        start.context(runner, hv.outputs, name),
        runner=runner,
        profile=profile,
        accounts={other: account_of(settings.profiles[other], start.user_env) for other in names},
        homes=hv.homes,
        prompts=Prompts(start.spec, FOLDER),
        price=price_of(profile, spec.model, settings.prices),
        gateway=gateway_access(hv.launcher, spec, profile, settings, start.user_env),
    )
