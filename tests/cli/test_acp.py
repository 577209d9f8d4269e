"""Agents that speak ACP, with a stand-in: what they report, may do, remember and cost."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from hypervisor.agents.acp import bridge
from hypervisor.agents.acp.order import Order, order_from, order_words
from hypervisor.agents.acp.permissions import Grant, Wish, choose, is_allowed
from tests.cli.conftest import until
from tests.support import standins
from tests.support.mcp_servers import end_mcp_servers

PROGRAM = Path(standins.__file__).with_name("acp_agent.py")


@pytest.fixture
def hv(project):
    config = project.folder / ".hypervisor" / "config.toml"
    tables = ""
    kinds = {
        "fake": [],
        "forgetful": ["--forgets"],
        "locked": ["--login"],
    }
    for name, words in kinds.items():
        argv = json.dumps([str(PROGRAM), *words])
        tables += f'[agents.{name}]\nprogram = "{sys.executable}"\nstream = "acp"\nargv = {argv}\n'
        tables += 'modes = {read-only = "careful"}\n'
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


def test_what_it_is_refused_is_asked_and_yes_allows_exactly_that(hv):
    task = run(hv, "refused", code=9)["detail"]["task"]
    assert "may it use `touch ran`?" in hv("ls").out
    assert hv("answer", task["id"], "no, the second way").code == 0
    until(lambda: "may it use `touch other`?" in hv("ls").out)
    assert hv("answer", task["id"], "Yes, the second way.").code == 0
    until(lambda: hv.tasks("b")[0]["state"] == "done")
    assert (hv.folder / "other").exists() and not (hv.folder / "ran").exists()


def test_what_was_allowed_is_no_more_than_that():
    long = "x" * 300
    assert Wish("execute", "Bash", command="rm a").description == "Bash rm a"
    assert Wish("execute", long + "1").description != Wish("execute", long + "2").description
    grant = Grant("read-only", "/work", granted=("Bash rm a",))
    assert is_allowed(Wish("execute", "Bash", command="rm a"), grant)
    assert not is_allowed(Wish("execute", "Bash", command="rm a b"), grant)


def test_one_that_dies_fails_with_a_reason(hv):
    dead = run(hv, "dies", "--retries", "0", code=9)
    assert dead["detail"]["task"]["state"] == "failed"
    assert "the agent ended without an answer" in hv("logs", dead["detail"]["task"]["id"]).out


def test_files_and_terminals_are_not_offered(hv):
    shown = run(hv, "wishes", "--permissions", "full")
    assert shown["detail"]["task"]["result"]["summary"] == "refused refused refused"
    assert not (hv.folder / "ran").exists() and not (hv.folder / "written").exists()


def test_a_stopped_one_is_cancelled_first_and_has_the_mode_of_the_permissions(hv):
    words = ("--prompt", "act-hangs", "--name", "b", "--item", "x", "--permissions", "read-only")
    more = ("--workspace", "project", "--detach", "--quiet")
    assert hv("run", "--agent", "fake", *words, *more).code == 0
    until(lambda: (hv.folder / "hanging").exists())
    assert (hv.folder / "mode").read_text() == "careful"
    (task,) = hv.tasks("b")
    assert hv("cancel", task["id"]).code == 0
    until(lambda: (hv.folder / "cancelled").exists())
    until(lambda: json.loads(hv("show", task["id"], "--json").out)["sessions"][0]["outcome"])
    (session,) = json.loads(hv("show", task["id"], "--json").out)["sessions"]
    assert (session["outcome"], session["tokens"]["input"]) == ("stopped", 100), "it could report"


@pytest.mark.parametrize("word", ["--mute", "--garbage"])
def test_one_that_never_answers_is_given_up(tmp_path, monkeypatch, capsys, word):
    monkeypatch.setattr(bridge, "HELLO_PATIENCE", 0.5)
    config = tmp_path / "mcp.json"
    config.write_text("{}")
    monkeypatch.setenv("HOME", str(tmp_path))
    command = (sys.executable, str(PROGRAM), word)
    order = Order(str(config), "edit", "", (), "", (), command)
    assert order_from(order_words(order)) == order
    assert asyncio.run(bridge.converse(order, "x")) == 1
    assert "did not answer initialize within 0.5 s" in capsys.readouterr().out


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
