"""A person answers a blocked agent: the model's next request in the same session has the answer."""

from __future__ import annotations

import pytest

from tests.agents.real.fleet import AgentProject
from tests.agents.real.moves import Move, Turn, call, result, say
from tests.torture.fleet import wait_for

pytestmark = [pytest.mark.agents, pytest.mark.gateway]
ANSWER = "use port 8080, it's free"
ASKS: dict[str, list[Move]] = {
    "item-line": [say("BLOCKED: no port / config is empty / Which port should it use?")],
    "item-report": [
        result(
            {
                "status": "blocked",
                "summary": "stopped",
                "reason": "no port",
                "question": "Which port should it use?",
            }
        )
    ],
    "item-mcp": [
        call("block_task", {"reason": "no port", "question": "Which port should it use?"}),
        say("BLOCKED: no port / - / Which port should it use?"),
    ],
}
DONE = [
    call("complete_task", {"summary": "uses port 8080"}),
    result({"status": "completed", "summary": "uses port 8080"}),
]


def asks_until_answered(moves: list[Move]) -> object:
    """A model that asks, and completes the task once the answer is in the conversation."""

    def answering(turn: Turn) -> Move:
        if ANSWER not in turn.text:
            return moves[min(turn.replies, len(moves) - 1)]
        completed = any(each.name.endswith("complete_task") for each in turn.calls)
        return DONE[completed]

    return answering


@pytest.mark.parametrize("agent", ("claude", "codex", "gemini"))
def test_the_models_next_request_has_the_answer(project: AgentProject, agent: str) -> None:
    ways = {item: moves for item, moves in ASKS.items() if (agent, item) != ("claude", "item-line")}
    for item, moves in ways.items():
        project.model.script(item + r"\b", asks_until_answered(moves))
    words = project.words(agent, "--workers", "3")
    project.run(*words, items=list(ways), seconds=600)
    tasks = {item: project.task(item) for item in ways}
    assert {task.state for task in tasks.values()} == {"blocked"}, project.story()
    assert all("Which port" in task.unblock for task in tasks.values()), tasks
    before = len(project.model.asked)

    for task in tasks.values():
        answered = project.ended(project.start("answer", task.id, ANSWER))
        assert answered.code == 0, answered
    wait_for(
        lambda: {task.state for task in project.tasks()} == {"done"},
        "the end of all tasks",
        seconds=300,
        story=project.story,
    )
    project.wait_until_left()
    for item, task in tasks.items():
        later = [asked for asked in project.model.asked[before:] if asked.key == item]
        first = later[0].turn
        assert ANSWER in first.text and "a person answered" in first.text, item
        assert first.replies >= 1, "the conversation before is part of the request"
        second, original = [run for run in project.sessions() if run.task == task.id]
        assert second.resumes == original.session == second.session != ""
