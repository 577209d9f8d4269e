"""An agent is silent when it prints nothing and runs no tool, whatever CPU it uses itself."""

from __future__ import annotations

import pytest

from tests.torture.agents import Agents


@pytest.mark.parametrize("kind", ["claude", "codex", "gemini"])
def test_a_model_that_hangs_is_silent_and_a_tool_at_work_is_not(project, kind):
    agents = Agents(project)
    acts = ["waits", "works-10"]
    agents.run(kind, "--workers", "2", "--silence", "6s", acts=acts)
    tasks = agents.tasks()
    assert tasks["waits"].state == "failed", project.story()
    assert "no output from the agent and no tool running for 6" in (tasks["waits"].reason or "")
    assert tasks["works-10"].state == "done", project.story()
    project.wait_until_left()
