"""What all runs of one worker's agent have in common, put together once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from hypervisor.agents.discovery import locate
from hypervisor.agents.final_report import REPORT_SCHEMA, schema_with
from hypervisor.agents.homes import AgentHomes
from hypervisor.agents.mcp_config import McpAccess
from hypervisor.agents.profile import AgentProfile
from hypervisor.agents.runner import AgentSetup
from hypervisor.agents.streams import parser
from hypervisor.queue.lease import Worker
from hypervisor.runs.processes.environment import told_to_attempts
from hypervisor.runs.spec import RunSpec

PULL = "pull"


def setup_for(
    profile: AgentProfile,
    spec: RunSpec,
    me: Worker,
    batch: str,
    given: Mapping[str, str],
    store: str,
    data: str,
    locks: str,
) -> AgentSetup:
    pulls = spec.mode == PULL
    access = McpAccess(os.path.abspath(store) if "://" not in store else store, batch)
    if pulls:
        labels = (*profile.capabilities, f"agent:{profile.name}")
        access = access._replace(
            keeper_pid=me.pid, keeper_name=me.name, pull=spec.pull, capabilities=labels
        )
    program = locate(profile, given)
    return AgentSetup(
        profile,
        program,
        "" if program else _missing(profile),
        AgentHomes(data),
        given,
        told_to_attempts(spec, batch, locks),
        access,
        "" if pulls or not profile.schema else _schema(spec),
        parser(profile.stream),
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
