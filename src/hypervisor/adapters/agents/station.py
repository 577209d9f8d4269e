"""What all runs of one worker's agent have in common, put together once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from hypervisor.adapters.agents.finding import locate
from hypervisor.adapters.agents.homes import AgentHomes
from hypervisor.adapters.agents.mcp_files import McpAccess
from hypervisor.adapters.agents.runner import Station
from hypervisor.adapters.environment import told_to_attempts
from hypervisor.domain.agents.profile import AgentProfile
from hypervisor.domain.agents.report import REPORT_SCHEMA, schema_with
from hypervisor.domain.agents.streams import hearing
from hypervisor.domain.lease import Worker
from hypervisor.domain.run import RunSpec

PULL = "pull"


def station_for(
    profile: AgentProfile, spec: RunSpec, me: Worker, batch: str, given: Mapping[str, str],
    store: str, data: str, locks: str,
) -> Station:  # fmt: skip
    pulls = spec.mode == PULL
    access = McpAccess(os.path.abspath(store) if "://" not in store else store, batch)
    if pulls:
        labels = (*profile.capabilities, f"agent:{profile.name}")
        access = access._replace(
            keeper_pid=me.pid, keeper_name=me.name, pull=spec.pull, capabilities=labels
        )
    program = locate(profile, given)
    return Station(
        profile,
        program,
        "" if program else _missing(profile),
        AgentHomes(data),
        given,
        told_to_attempts(spec, batch, locks),
        access,
        "" if pulls or not profile.schema else _schema(spec),
        hearing(profile.stream),
        f"{me.pid}-{me.pid_start}",
    )


def _missing(profile: AgentProfile) -> str:
    how = f" Install it ({profile.install}) and" if profile.install else " Install it and"
    return (
        f"{profile.name} is not installed: there is no program {profile.program} on PATH."
        f"{how} run the batch again."
    )


def _schema(spec: RunSpec) -> str:
    schema = schema_with(json.loads(spec.schema)) if spec.schema else REPORT_SCHEMA
    return json.dumps(schema, separators=(",", ":"))
