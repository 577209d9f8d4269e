"""Agents that speak ACP, with a stand-in: what they report, may do, remember and cost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hypervisor.agents.acp.permissions import Grant, Wish, choose, is_allowed
from tests.cli.conftest import until
from tests.support import standins
from tests.support.mcp_servers import end_mcp_servers

PROGRAM = Path(standins.__file__).with_name("acp_agent.py")


@pytest.fixture
def hv(project):
    config = project.folder / ".hypervisor" / "config.toml"
    tables = ""
    for name, words in {"fake": [], "forgetful": ["--forgets"], "locked": ["--login"]}.items():
        argv = json.dumps([str(PROGRAM), *words])
        tables += f'[agents.{name}]\nprogram = "{sys.executable}"\nstream = "acp"\nargv = {argv}\n'
    config.write_text(config.read_text() + tables)
    yield project
    end_mcp_servers(project.folder)


def run(hv, act, *more, agent="fake", code=0):
    words = ("--prompt", "Do {item}", "--name", "b", "--item", f"act-{act}", *more)
    done = hv("run", "--agent", agent, "--quiet", "--workspace", "project", *words)
    assert done.code == code, done
    (task,) = hv.tasks("b")
    return json.loads(hv("show", task["id"], "--json").out)


def test_its_report_its_usage_and_its_session_are_read(hv):
    shown = run(hv, "ok")
    assert shown["detail"]["task"]["result"]["summary"] == "looked at it"
    (session,) = shown["sessions"]
    assert (session["outcome"], session["cost"], session["estimated"]) == ("completed", 0.5, False)
    assert session["tokens"] == {"input": 100, "output": 20, "cached": 5} and session["session"]
    assert "I look." in hv("logs", shown["detail"]["task"]["id"]).out


def test_it_uses_our_tools(hv):
    shown = run(hv, "mcp", "--permissions", "read-only")
    assert shown["detail"]["task"]["result"] == {"summary": "over MCP"}


def test_an_answer_continues_its_session(hv):
    task = run(hv, "asks", code=9)["detail"]["task"]
    assert "needs input" in hv("ls").out
    assert hv("answer", task["id"], "use port 8080").code == 0
    until(lambda: hv.tasks("b")[0]["state"] == "done")
    assert (hv.folder / "port").read_text() == "8080 2", "in the same session"
    first, second = json.loads(hv("show", task["id"], "--json").out)["sessions"]
    assert (second["resumes"], second["cost"]) == (first["session"], 0.5)


def test_without_sessions_to_resume_a_new_one_gets_the_history(hv):
    task = run(hv, "asks", agent="forgetful", code=9)["detail"]["task"]
    assert hv("answer", task["id"], "use port 8080").code == 0
    until(lambda: hv.tasks("b")[0]["state"] == "done")
    assert (hv.folder / "port").read_text() == "8080 1"


@pytest.mark.parametrize(
    "act, mode, ended, made",
    [
        ("runs", "edit", "blocked", []),
        ("runs", "full", "done", ["ran"]),
        ("edits", "edit", "done", ["new.txt"]),
        ("edits", "read-only", "blocked", []),
    ],
)
def test_the_permissions_of_the_batch_answer_its_requests(hv, act, mode, ended, made):
    shown = run(hv, act, "--permissions", mode, code=0 if ended == "done" else 9)
    assert shown["detail"]["task"]["state"] == ended
    assert [
        name for name in ("ran", "new.txt", "../outside.txt") if (hv.folder / name).exists()
    ] == made
    refused = shown["sessions"][0]["denied"]
    assert bool(refused) == (act == "edits" or ended == "blocked")


def test_it_is_logged_in_with_a_key_if_it_asks(hv):
    assert run(hv, "ok", agent="locked")["detail"]["task"]["state"] == "done"


def test_a_limit_is_a_limit(hv):
    words = ("--prompt", "act-limit", "--name", "b", "--item", "x", "--detach")
    assert hv("run", "--agent", "fake", "--quiet", *words).code == 0
    until(lambda: "rate-limited" in hv("status", "b").out)
    (task,) = hv.json("ls", "--batch", "b")
    assert (task["state"], task["failures"]) == ("active", 0)


@pytest.mark.parametrize(
    "wish, mode, allowed",
    [
        (Wish("read", "Read /etc/passwd"), "read-only", True),
        (Wish("edit", "Write", ("/work/a",)), "read-only", False),
        (Wish("edit", "Write", ("/work/a",)), "edit", True),
        (Wish("edit", "Write", ("/work/../etc/a",)), "edit", False),
        (Wish("edit", "Write", ("/workshop/a",)), "edit", False),
        (Wish("edit", "Write"), "edit", False),
        (Wish("execute", "hypervisor"), "edit", False),
        (Wish("other", "remember (hypervisor)"), "read-only", True),
        (Wish("fetch", "WebFetch x"), "edit", False),
        (Wish("execute", "rm"), "full", True),
    ],
)
def test_what_is_allowed(wish, mode, allowed):
    assert is_allowed(wish, Grant(mode, "/work")) is allowed
    assert is_allowed(wish, Grant(mode, "/work", (wish.title.split()[0],)))


def test_nothing_is_allowed_for_longer_than_once():
    options = [("a", "allow_always"), ("b", "allow_once"), ("c", "reject_once")]
    assert (choose(options, True), choose(options, False)) == ("b", "c")
    assert choose(options[:1], True) == choose(options[:1], False) == ""
