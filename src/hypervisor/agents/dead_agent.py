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
    from hypervisor.agents.session import AgentSession
    from hypervisor.queue.lease import Worker
    from hypervisor.runs.processes.launcher import LocalLauncher


def clean_up_home(
    homes: AgentHomes,
    launcher: LocalLauncher,
    worker: Worker,
    session: AgentSession,
    profile: AgentProfile,
) -> None:
    """Take the secrets of its run out of its home. The home of an agent that claimed by itself,
    which has no task, is removed."""
    if not session.task:
        homes.remove(f"{worker.pid}-{worker.pid_start}")
    elif homes.exists(session.task):
        given = launcher.environment(session.batch)
        access = McpAccess(launcher.where, session.batch)
        secrets = secrets_of(profile, os.environ if given is None else given, access)
        scrub(homes.at(session.task), secrets, profile.login)
