"""`hv attach` with the real CLIs in a pseudo-terminal: a person continues the session of a blocked
agent, and the agent continues it afterwards."""

from __future__ import annotations

import pytest

from tests.agents.real.fleet import ITEM, KEY, AgentProject, all_files
from tests.agents.real.moves import Move, Turn, call, result, say
from tests.support.typed_terminal import TypedTerminal
from tests.torture.fleet import PROGRAM, wait_for

pytestmark = [pytest.mark.agents, pytest.mark.gateway]
TYPED = "we use port 8080 here"
ASKS = {
    "claude": result({"status": "blocked", "summary": "s", "reason": "no port", "question": "?"}),
    "codex": say("BLOCKED: no port / config is empty / Which port should it use?"),
    "gemini": say("BLOCKED: no port / config is empty / Which port should it use?"),
}
# What the program shows when it is ready for input, and the keys that end it.
READY = {"claude": "← for agents", "codex": "Ask Codex", "gemini": "Type your message"}
LEAVE = {"claude": ["/exit", "\r"], "codex": ["\x03", "\x03"], "gemini": ["/quit", "\r"]}
QUESTION = "Hand the task back"


def moves_for(agent: str) -> object:
    def moves(turn: Turn) -> Move:
        if "I have worked in this session" in turn.text:
            completed = any(each.name.endswith("complete_task") for each in turn.calls)
            done = {"status": "completed", "summary": "done"}
            return result(done) if completed else call("complete_task", {"summary": "done"})
        return say("THE MODEL READ IT") if TYPED in turn.text else ASKS[agent]

    return moves


@pytest.mark.parametrize("agent", ("claude", "codex", "gemini"))
def test_a_person_works_in_the_session_and_hands_it_back(project: AgentProject, agent: str) -> None:
    project.model.script(ITEM, moves_for(agent))
    project.work(agent, 1)
    (task,) = project.tasks()
    assert task.state == "blocked", project.story()
    terminal = TypedTerminal([*PROGRAM, "attach", task.id], project.folder, project.env)
    terminal.wait_for(READY[agent])
    for _ in range(20):  # a program that has just drawn its prompt may lose a key
        terminal.type(TYPED)
        terminal.settle()
        terminal.type("\r")
        if terminal.shows("THE MODEL READ IT", 5):
            break
    assert terminal.shows("THE MODEL READ IT", 1), terminal.text[-2000:]
    assert project.task("item-000").state == "in_progress"
    for keys in LEAVE[agent]:
        if not terminal.shows(QUESTION, 0.5):
            terminal.type(keys)
            terminal.settle()
    terminal.wait_for(QUESTION)
    terminal.type("c\n")
    assert terminal.ended() == 0, terminal.text[-2000:]
    wait_for(lambda: project.states() == {"done": 1}, "the end", 120, project.story)
    project.wait_until_left()
    again, attached, first = project.sessions()
    assert attached.outcome == "attached" and attached.tokens.output > 0
    assert again.resumes == attached.session == attached.resumes == first.session != ""
    conversation = project.model.asked[-1].turn.text
    assert TYPED in conversation, "the agent knows what was typed"
    assert not [path for path in all_files(project.home) if KEY.encode() in path.read_bytes()]
