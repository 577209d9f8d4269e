"""The parts of a context as a test wants them; those it does not name are missing."""

from types import SimpleNamespace
from typing import Any

from hypervisor.agents.agent_settings import AgentSettings
from hypervisor.agents.agents import assign_agents
from hypervisor.batches.write_back import write_back
from hypervisor.runs.config import Settings


def parts(**given: Any) -> SimpleNamespace:
    usual = {
        "settings": Settings(),
        "agent_settings": AgentSettings(),
        "task_files": None,
        "write_back": write_back,
        "assign_agents": assign_agents,
        "prepare_workspaces": lambda spec, items: spec,
    }
    return SimpleNamespace(**(usual | given))
