"""`--schema` is enforced for the real CLIs, however they report."""

from __future__ import annotations

import json

import pytest

from tests.agents.real.fleet import AgentProject
from tests.agents.real.moves import Move, Turn, call, result

pytestmark = pytest.mark.agents
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
MISMATCH = "data.count: 'three' is not of type 'integer'"
WHY = f"the data does not match the schema: {MISMATCH}"


def report(count: object) -> Move:
    return result({"status": "completed", "summary": "counted", "data": {"count": count}})


def complete(count: object) -> Move:
    return call("complete_task", {"summary": "counted", "result": {"data": {"count": count}}})


def moves(turn: Turn) -> Move:
    """What the model answers, by item; its prompt shows whether a correction was requested."""
    told = "was not accepted" in turn.text and MISMATCH in turn.text
    if "item-stubborn" in turn.text:
        return report("three")
    if "item-reports" in turn.text:
        return report(3 if told else "three")
    if "item-completes" in turn.text and len(turn.calls) < 2:
        return complete(3 if turn.calls else "three")
    return report(3)


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_data_that_does_not_fit_goes_back_once(project: AgentProject, agent: str) -> None:
    project.model.script("item-[a-z]+", moves)
    path = project.folder / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    items = ["item-reports", "item-completes", "item-stubborn"]
    words = project.words(agent, "--schema", str(path), "--workers", "3")
    project.run(*words, items=items, seconds=600)
    project.wait_until_left()
    reports, completes, stubborn = (project.task(item) for item in items)
    assert [task.state for task in (reports, completes, stubborn)] == ["done", "done", "failed"]
    assert reports.result["data"] == completes.result["data"] == {"count": 3}, project.story()
    assert stubborn.reason == WHY and stubborn.attempts == 2
    assert reports.attempts == 2 and completes.attempts == 1
