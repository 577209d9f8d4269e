"""Cleans up after an agent that died together with its worker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypervisor.agents.mcp_config import McpAccess
from hypervisor.agents.scrubbing import scrub
from hypervisor.agents.setup import secrets_of

if TYPE_CHECKING:
    from hypervisor.agents.homes import AgentHomes
    from hypervisor.agents.profile import AgentProfile
    from hypervisor.queue.agent_session import AgentSession
    from hypervisor.queue.lease import Worker
    from hypervisor.runs.processes.launcher import LocalLauncher


def clean_up_home(
    homes: AgentHomes,
    launcher: LocalLauncher,
    worker: Worker,
    session: AgentSession,
    profile: AgentProfile,
) -> None:
    """Remove the session's secrets from the home; remove the home of a pull agent."""
    if not session.task:
        homes.remove(f"{worker.pid}-{worker.pid_start}")
    elif homes.exists(session.task):
        user_env = launcher.environment(session.batch)
        access = McpAccess(launcher.where, session.batch)
        secrets = secrets_of(profile, os.environ if user_env is None else user_env, access)
        scrub(homes.at(session.task), secrets, profile.login)
