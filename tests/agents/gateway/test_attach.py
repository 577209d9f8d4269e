"""`hv attach` in a pseudo-terminal, with an agent that calls its model through the gateway."""

from __future__ import annotations

import pytest

from tests.agents.gateway.calling_project import ITEM, CallingProject
from tests.agents.real.model_server import ModelServer
from tests.agents.real.moves import say
from tests.support.typed_terminal import TypedTerminal
from tests.torture.fleet import PROGRAM, wait_for

END = "\x04"  # of the input, as typed


@pytest.fixture
def model():
    with ModelServer(keep_bodies=True) as server:
        server.script(ITEM, lambda turn: say("hello", tokens=(1000, 200, 0)))
        server.script("typed", lambda turn: say("I see", tokens=(10, 2, 0)))
        yield server


@pytest.fixture
def project(tmp_path, model):
    here = CallingProject(tmp_path, model, calls=10_000, pause=0.01)
    yield here
    here.close()


def attach(here: CallingProject, model: ModelServer, *words: str) -> tuple[str, TypedTerminal]:
    """To a task that runs."""
    here.start(*here.work(1, "--workers", "1", "--detach"))
    wait_for(lambda: len(model.bodies) > 2, "some calls", 60, here.story)
    ((id,),) = here.query("SELECT id FROM tasks")[0]
    terminal = TypedTerminal([*PROGRAM, "attach", id, *words], here.folder, here.env)
    terminal.wait_for("resumed s-1 in")
    return id, terminal


def test_a_running_attempt_is_stopped_and_its_session_continues_in_the_terminal(project, model):
    id, terminal = attach(project, model)
    calls = len(model.bodies)
    assert project.states() == {"in_progress": 1}
    (rows,) = project.query("SELECT number, outcome FROM attempts ORDER BY number")
    assert rows == [(1, "released"), (2, None)]
    assert project.query("SELECT failures, crashes FROM tasks") == [[(0, 0)]]
    terminal.type("typed by a person\n")
    terminal.wait_for("answered 200")
    assert len(model.bodies) == calls + 1, "nobody else spends"
    assert "typed by a person" in str(model.bodies[-1]["body"])
    terminal.type(END)
    terminal.wait_for("Hand the task back")
    terminal.type("d\n")
    assert terminal.ended() == 0
    assert f"{id}isdone" in terminal.text
    assert project.states() == {"done": 1}
    (rows,) = project.query("SELECT outcome, input_tokens, resumes FROM sessions ORDER BY id")
    assert rows[0][0] == "lost_claim" and rows[1] == ("attached", 10, "s-1")


def test_the_agent_continues_with_a_note(project, model):
    id, terminal = attach(project, model, "--then", "continue", "--note", "mind the typed gap")
    calls = len(model.bodies)
    terminal.type(END)
    assert terminal.ended() == 0
    assert "continuesinthebackground" in terminal.text
    wait_for(lambda: len(model.bodies) > calls, "the agent", 60, project.story)
    assert "mind the typed gap" in str(model.bodies[-1]["body"])
    (rows,) = project.query("SELECT attempt, resumes FROM sessions ORDER BY id")
    assert rows[-1] == (3, "s-1")
    assert project.query("SELECT failures, crashes FROM tasks") == [[(0, 0)]]
    project.ended(project.start("cancel", id))


def test_a_closed_terminal_hands_the_task_back(project, model):
    _, terminal = attach(project, model, "--then", "block")
    terminal.close()
    terminal.program.wait(60)
    assert project.states() == {"blocked": 1}


def test_a_claim_that_a_person_took_away_ends_it(project, model):
    """Its token spends nothing any more."""
    id, terminal = attach(project, model)
    assert project.ended(project.start("cancel", id)).code == 0
    calls = len(model.bodies)
    terminal.type("typed in vain\n")
    terminal.wait_for("Hypervisor: this attempt has ended")
    terminal.type(END)
    assert terminal.ended() == 0
    assert not [body for body in model.bodies[calls:] if "in vain" in str(body["body"])]
    assert project.states() == {"cancelled": 1}


def test_it_says_what_cannot_be_attached(project, model):
    added = project.ended(project.start("add", "by hand"))
    assert added.code == 0
    ((id,),) = project.query("SELECT id FROM tasks")[0]
    piped = project.ended(project.start("attach", id))
    assert piped.code == 2 and "needs a terminal" in piped.err
    terminal = TypedTerminal([*PROGRAM, "attach", id], project.folder, project.env)
    terminal.wait_for("has no agent session. Nothing was changed.")
    assert terminal.ended() != 0
    assert project.states() == {"active": 1}
