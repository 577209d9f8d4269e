"""The real CLIs in a sandbox: confined, with their model and their MCP server within reach."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hypervisor.runs.sandbox.host import host_walls
from hypervisor.runs.sandbox.level import Level, refused
from tests.agents.real.fleet import AgentProject
from tests.agents.real.moves import Move, Turn, call, result, shell
from tests.support.targets import Targets, make_repository, worked

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not host_walls().bubblewrap, reason=host_walls().why_not),
]
DONE = result({"status": "completed", "summary": "done"})


@pytest.fixture
def targets(project: AgentProject) -> Iterator[Targets]:
    made = Targets(project)
    make_repository(project.folder)
    yield made
    made.close()


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
@pytest.mark.parametrize("level", ["files", "network"])
def test_a_real_agent_is_confined(
    project: AgentProject, targets: Targets, level: Level, agent: str
) -> None:
    answers: list[str] = []

    def moves(turn: Turn) -> Move:
        if not turn.calls:
            return shell(targets.shell_line())
        answers.append(turn.last)
        if len(turn.calls) == 1:
            return call("append_receipt", {"text": "tried everything"})
        return DONE

    project.model.script("item-1", moves)
    words = project.words(agent, "--permissions", "full", "--sandbox", level, "--name", "b")
    ended = project.run(*words, items=["item-1"], seconds=600)
    assert ended.code == 0, ended.err + project.story() + str(answers)
    deeds = worked(answers[0].replace('\\"', '"'))
    assert {name for name, success in deeds.items() if not success} == refused(level, "bubblewrap")
    with project.open() as hv:
        receipts = [receipt.text for receipt in hv.receipts("b")]
    assert "tried everything" in receipts, "the MCP server was out of reach"
    assert f"sandbox: {level}, built with bubblewrap" in receipts
    assert (f"sandbox: refused a connection to 127.0.0.1:{targets.port}" in receipts) == (
        level == "network"
    )


def test_the_own_sandbox_of_codex_works_inside(project: AgentProject, targets: Targets) -> None:
    """It runs the command, still confined to the folder, and does not hang."""
    answers: list[str] = []

    def moves(turn: Turn) -> Move:
        if not turn.calls:
            return shell("echo made > made.txt && cat made.txt; echo no > $HOME/no && echo WROTE")
        answers.append(turn.last)
        return DONE

    project.model.script("item-1", moves)
    words = project.words("codex", "--permissions", "edit", "--sandbox", "files")
    ended = project.run(*words, items=["item-1"], seconds=300)
    assert ended.code == 0, ended.err + project.story() + str(answers)
    assert "made" in answers[0] and "WROTE" not in answers[0], answers
