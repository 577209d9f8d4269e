"""`hv answer` and what people see of a task that asks something, with stand-ins for agents."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.conftest import assert_one_clear_line, until
from tests.support.mcp_servers import end_mcp_servers

WAYS = ("act-asks", "act-asks-line", "act-asks-mcp")
# Shells would do something with this; an agent gets it as it is.
ANSWER = "it's $(touch pwned) `touch pwned`; use port 8080"


@pytest.fixture
def hv(project):
    project.equip("sk-planted-4711")
    yield project
    end_mcp_servers(project.folder)


def ask(hv, agent, *ways):
    words = [word for way in ways for word in ("--item", way)]
    prompt = ("--prompt", "Do {item}", "--name", "ports")
    done = hv("run", "--agent", agent, "--quiet", *prompt, *words)
    assert done.code == 9, done
    return {task["title"]: task for task in hv.tasks("ports")}


def prompts(hv):
    lines = (hv.folder / "agents" / "provider" / "prompts").read_text().splitlines()
    return [json.loads(line.split(" ", 2)[2]) for line in lines]


@pytest.mark.parametrize("kind", ["claude", "codex", "gemini"])
def test_the_same_session_gets_the_answer(hv, kind):
    """However the question was asked."""
    tasks = ask(hv, f"fake-{kind}", *WAYS)
    assert {task["state"] for task in tasks.values()} == {"blocked"}
    listed = hv("ls", "--state", "blocked")
    assert listed.out.count("needs input") == 3 and "Which port" in listed.out

    for task in tasks.values():
        answered = hv("answer", task["id"], ANSWER, "--json")
        assert answered.code == 0 and json.loads(answered.out)["task"] == task["id"], answered
    until(lambda: {task["state"] for task in hv.tasks("ports")} == {"done"})
    for task in tasks.values():
        shown = json.loads(hv("show", task["id"], "--json").out)
        (message,) = shown["messages"]
        assert (message["text"], message["attempt"]) == (ANSWER, 2)
        first, second = shown["sessions"]
        assert second["resumes"] == first["session"] != ""
    resumed = [seen for seen in prompts(hv) if seen["resumes"]]
    assert len(resumed) == 3
    for seen in resumed:
        assert seen["session"] == seen["resumes"]
        assert "a person answered" in seen["prompt"] and ANSWER in seen["prompt"]
    ports = [hv.folder / f"port-{way}" for way in ("", "line", "mcp")]
    assert [path.read_text() for path in ports] == ["8080"] * 3
    assert not list(hv.folder.rglob("pwned"))


def test_people_see_the_question_and_how_to_answer(hv):
    (task,) = ask(hv, "fake-claude", "act-asks").values()
    id = task["id"]
    shown = hv("show", id).out
    assert "needs input" in shown and f"hv answer {id} 'TEXT'" in shown
    assert re.search(r"asks +Which port should it use\?", shown)
    assert json.loads(hv("show", id, "--json").out)["question"] == "Which port should it use?"
    status = hv("status", "ports").out
    assert f"needs input (hv answer {id} 'TEXT'): act-asks: Which port should it use?" in status
    (question,) = json.loads(hv("status", "ports", "--json").out)["questions"]
    assert question == {"task": id, "title": "act-asks", "question": "Which port should it use?"}


def test_an_answer_can_come_from_stdin(hv):
    (task,) = ask(hv, "fake-claude", "act-asks").values()
    assert hv("answer", task["id"], "-", stdin="use port 9090").code == 0
    until(lambda: hv.tasks("ports")[0]["state"] == "done")
    assert (hv.folder / "port-").read_text() == "9090"
    refused = hv("answer", task["id"], "again")
    assert refused.code == 5, refused
    assert_one_clear_line(refused.err)
    assert f"hv retry {task['id']}" in refused.err


def test_a_task_without_a_run_waits_for_a_claim(hv):
    id = hv("add", "look").out.split()[0]
    token = hv("claim").out.split()[0]
    assert hv("block", token, "no login", "--unblock", "which account?").code == 0
    assert "needs input" in hv("ls").out
    assert hv("answer", id, "the second").code == 0
    assert json.loads(hv("show", id, "--json").out)["detail"]["task"]["state"] == "active"


class TestTelling:
    """A note to a running agent reaches it however it works."""

    NOTE = "it's $(touch pwned): leave the tests alone"

    def start(self, hv, act):
        words = ("--prompt", "Do {item}", "--name", "notes", "--item", act, "--detach")
        assert hv("run", "--agent", "fake-claude", "--quiet", *words).code == 0
        provider = hv.folder / "agents" / "provider"
        until(lambda: (provider / "waiting").exists())
        (task,) = hv.tasks("notes")
        told = hv("tell", task["id"], self.NOTE, "--json")
        assert told.code == 0 and json.loads(told.out)["state"] == "in_progress", told
        (provider / "go").touch()
        until(lambda: hv.tasks("notes")[0]["state"] == "done")
        shown = lambda: json.loads(hv("show", task["id"], "--json").out)  # noqa: E731
        until(lambda: all(session["outcome"] for session in shown()["sessions"]))
        heard = [json.loads(line) for line in (provider / "heard").read_text().splitlines()]
        (message,) = shown()["messages"]
        return heard, hv.tasks("notes")[0]["attempts"], message["attempt"]

    def test_with_the_answer_of_a_tool(self, hv):
        heard, attempts, given = self.start(hv, "act-listens-mcp")
        assert [self.NOTE in text for text in heard] == [False, True, False, False]
        assert (attempts, given) == (1, 1)

    def test_before_it_completes_the_task(self, hv):
        heard, attempts, given = self.start(hv, "act-listens-late")
        assert [self.NOTE in text for text in heard] == [False, True, False]
        assert "not completed yet" in heard[1] and '"isError": true' in heard[1]
        assert (attempts, given) == (1, 1)

    def test_in_the_same_session_if_it_calls_no_tool(self, hv):
        heard, attempts, given = self.start(hv, "act-listens")
        assert [self.NOTE in text for text in heard] == [False, True]
        assert "A person sent this note" in heard[1]
        assert (attempts, given) == (2, 2)
        (shown,) = hv.tasks("notes")
        first, second = json.loads(hv("show", shown["id"], "--json").out)["sessions"]
        assert (first["outcome"], second["resumes"]) == ("noted", first["session"])
        assert not list(hv.folder.rglob("pwned"))


def test_a_note_waits_for_the_next_attempt_and_not_for_a_finished_task(hv):
    id = hv("add", "look").out.split()[0]
    assert hv("tell", id, "gently").code == 0
    assert "note (not read yet): gently" in hv("show", id).out
    assert hv("cancel", id).code == 0
    refused = hv("tell", id, "again")
    assert refused.code == 5 and "nobody would read the note" in refused.err
