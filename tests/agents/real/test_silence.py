"""A model that hangs is detected by its silence, whatever CPU the program uses while it waits."""

from __future__ import annotations

import pytest

from tests.agents.real.fleet import AgentProject
from tests.agents.real.moves import hang, shell

pytestmark = pytest.mark.agents


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_a_model_that_hangs_does_not_hold_its_slot(project: AgentProject, agent: str) -> None:
    project.model.script("item-1", [shell("echo begun"), hang()])
    words = project.words(agent, "--permissions", "full", "--silence", "6s")
    project.run(*words, items=["item-1"], seconds=240)
    project.wait_until_left()
    task = project.task("item-1")
    assert task.state == "failed", project.story()
    assert "silence limit: no output from the agent and no tool running for 6" in task.reason
