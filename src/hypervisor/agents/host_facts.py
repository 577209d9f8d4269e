"""What a host has for agents: programs and GPUs."""

from __future__ import annotations

import os
import platform
from glob import glob
from typing import TYPE_CHECKING

from hypervisor.agents import discovery

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.runs.host_keeper import HostFacts

GPUS = "/dev/nvidia[0-9]*"


def with_agents(hv: Context, facts: HostFacts) -> HostFacts:
    """Finds programs but starts none: the supervisor must not wait for an agent's answer."""
    profiles = hv.agent_settings.profiles.items()
    agents = [name for name, profile in profiles if discovery.locate(profile, os.environ)]
    more = {"gpus": len(glob(GPUS)), "agents": sorted(agents)}
    versions = {**facts.versions, "python": platform.python_version()}
    return facts._replace(resources={**facts.resources, **more}, versions=versions)
