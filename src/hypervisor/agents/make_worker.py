"""Puts together a worker that runs an agent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypervisor.agents.account import account_of
from hypervisor.agents.budget import price_of
from hypervisor.agents.prompt_files import FOLDER, Prompts
from hypervisor.agents.pull_worker import PullWorker
from hypervisor.agents.push_worker import Duty, PushWorker
from hypervisor.agents.runner import AgentRunner
from hypervisor.agents.worker_setup import setup_for
from hypervisor.core.errors import InvalidInput
from hypervisor.runs.make_worker import belongings_of
from hypervisor.runs.processes.launcher import mark_of

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Worker as Identity
    from hypervisor.runs.spec import RunSpec
    from hypervisor.runs.worker import Worker


def make_agent_worker(hv: Context, me: Identity, batch: str, spec: RunSpec, name: str) -> Worker:
    """A worker that runs an agent on tasks it claims, or keeps one that claims by itself."""
    settings, places = hv.settings, hv.launcher.places
    if name not in settings.agents:
        raise InvalidInput(f"there is no agent {name!r} in config.toml any more.")
    profile = settings.agents[name]
    given, group, journal = belongings_of(hv, me, batch)
    store = os.environ.get("HYPERVISOR_STORE") or hv.store.where
    station = setup_for(profile, spec, me, batch, given, store, places.data, places.locks)
    runner = AgentRunner(spec, station, mark_of(me), group, settings.nice)
    known = {name, *spec.agents} & set(settings.agents)
    accounts = {each: account_of(settings.agents[each], given) for each in known}
    prompts = Prompts(spec, FOLDER)
    price = price_of(profile, spec.model, settings.prices)
    duty = Duty(
        profile,
        accounts,
        station.homes,
        prompts.write,
        prompts.go_on,
        prompts.correct,
        prompts.pull,
        price,
    )
    kind = PullWorker if spec.mode == "pull" else PushWorker
    return kind(hv, me, batch, spec, runner, journal, hv.outputs, settings, duty)
