"""When something goes wrong for real agents, the outcome is right, whatever their exit code."""

from __future__ import annotations

import pytest

from tests.agents.real.fleet import AgentProject
from tests.agents.real.moves import Move, broken, call, drop, garbled, refuse, result, say, shell

pytestmark = pytest.mark.agents
MAIN = ("claude", "codex", "gemini")
DONE = [
    call("complete_task", {"summary": "done"}),
    result({"status": "completed", "summary": "done"}),
]
LONG = " ".join(map(str, range(780_000)))  # 5 MB; gemini ends what repeats itself
BLOCKED = {
    "status": "blocked",
    "summary": "stopped",
    "reason": "the file is not there",
    "evidence": "a.py: No such file",
    "next_step": "add a.py",
}

# What the model does, by item.
SCRIPTS: dict[str, list[Move]] = {
    "item-settled": DONE,
    "item-reported": [result({"status": "completed", "summary": "done"})],
    "item-blocked": [result(BLOCKED)],
    "item-failed": [result({**BLOCKED, "status": "failed"})],
    "item-idle": [say("I could look at this, if you want.")],
    "item-refused": [refuse(400, error="messages: text content blocks must be non-empty")],
    "item-dropped": [drop(), *DONE],
    "item-once": [broken(), *DONE],
    "item-garbled": [garbled(), *DONE],
    "item-long": [say(LONG + "\nCOMPLETED: all read")],
}
# Item → state of its task and outcome of its last run, where nothing is tried again.
EXPECTED: dict[str, dict[str, tuple[str, ...]]] = {
    "item-settled": dict.fromkeys(MAIN, ("done", "settled")),
    "item-reported": dict.fromkeys(MAIN, ("done", "completed")),
    "item-blocked": dict.fromkeys(MAIN, ("blocked", "blocked")),
    "item-failed": dict.fromkeys(MAIN, ("failed", "failed")),
    "item-idle": dict.fromkeys(MAIN, ("failed", "nothing_done")),
    "item-refused": dict.fromkeys(MAIN, ("failed", "bad_request")),
    "item-dropped": dict.fromkeys(MAIN, ("done", "settled")),
    "item-once": dict.fromkeys(MAIN, ("done", "settled")),
    "item-garbled": dict.fromkeys(MAIN, ("done", "settled")),
    "item-long": {
        **dict.fromkeys(MAIN, ("done", "completed")),
        # It exits with 0 before it has written all of that, including its last message.
        "gemini": ("failed", "crashed"),
    },
}


@pytest.mark.parametrize("agent", MAIN)
def test_the_outcome_is_decided_by_evidence(project: AgentProject, agent: str) -> None:
    for item, moves in SCRIPTS.items():
        project.model.script(item + r"\b", moves)
    project.run(*project.words(agent, "--workers", "4"), items=list(SCRIPTS), seconds=600)
    project.wait_until_left()
    found = {item: _verdict(project, item) for item in SCRIPTS}
    assert found == {item: EXPECTED[item][agent] for item in SCRIPTS}, project.story()
    for item in ("item-dropped", "item-once", "item-garbled"):
        assert project.task(item).failures == 0, "the task was punished for its provider"
    task = project.task("item-blocked")
    assert "the file is not there" in task.reason
    assert task.unblock == "add a.py"


@pytest.mark.parametrize("agent", MAIN)
def test_without_a_key_the_batch_stops_and_says_so(project: AgentProject, agent: str) -> None:
    """A refused key is refused for all: the tasks wait, unharmed, and the pause gives the
    reason."""
    project.model.script("item-", [refuse(401, error="invalid x-api-key")])
    client = project.start(
        "run", *project.words(agent, "--workers", "2", "--detach"), items=project.items(4)
    )
    started = project.ended(client)
    assert started.code == 0, started.err
    paused = project.pause()
    assert agent in paused.reason
    project.wait_until_left()
    assert set(project.states()) == {"active"}, project.story()
    assert all(task.failures == 0 for task in project.tasks())


def test_refused_tools_block_the_task(project: AgentProject) -> None:
    """claude denies what is not allowed, tells the model, and exits with 0."""
    project.model.script("item-1", [shell("touch forbidden"), say("I could not do it.")])
    project.run(
        *project.words("claude", "--permissions", "read-only"), items=["item-1"], seconds=600
    )
    project.wait_until_left()
    assert _verdict(project, "item-1") == ("blocked", "tools_denied"), project.story()
    assert "Bash" in project.task("item-1").reason
    assert not (project.folder / "forbidden").exists()


@pytest.mark.parametrize("agent", ["claude", "gemini"])
def test_turns_end_an_agent_that_goes_round_in_circles(project: AgentProject, agent: str) -> None:
    project.model.script("item-1", [shell("echo again")])
    words = project.words(agent, "--permissions", "full", "--turns", "2")
    project.run(*words, items=["item-1"], seconds=600)
    project.wait_until_left()
    assert _verdict(project, "item-1") == ("failed", "max_turns"), project.story()


def _verdict(project: AgentProject, item: str) -> tuple[str, str]:
    task = project.task(item)
    last = next(session for session in project.sessions() if session.task == task.id)
    return task.state, last.outcome
