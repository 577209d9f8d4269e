"""`hv run --then … --reduce …`: what is refused, what is shown, and agents that reduce."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import until
from tests.cli.reducing import (
    MERGED,
    TWO,
    lines,
    prepared,
    run,
    stages,
    words,
)


@pytest.fixture
def hv(project):
    return prepared(project)


class TestWords:
    def test_a_rehearsal_shows_what_follows(self, hv):
        out = hv.ok(*words("--dry-run", "--item", "x"))
        assert out.splitlines() == [
            "./step one-x",
            f"stage 2: {TWO}",
            f"reduce: {MERGED}",
            "1 item (dry run: nothing was started)",
        ]
        found = json.loads(hv.ok(*words("--dry-run", "--json", "--item", "x")))
        assert found["then"] == [TWO.split()] and found["reduce"] == {"command": MERGED.split()}

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--then", "no-such-program {}"], "command not found: no-such-program"),
            (["--reduce", "no-such-program {}"], "command not found: no-such-program"),
            (["--reduce", "wc {name}"], "unknown column {name}"),
            (["--then", "wc {name}"], "unknown column {name}"),
            (["--then", "wc '{}"], "quotation"),
            (["--then", " "], "--then is empty"),
            (["--reduce", "wc", "--reduce-fn", "a:b"], "use only one of"),
            (["--reduce-fn", "nowhere"], "invalid function"),
            (["--reduce-agent", "claude"], "needs --reduce-prompt"),
            (["--reduce-prompt", "sum it up"], "needs an agent"),
            (["--reduce-prompt", "sum it up", "--reduce-agent", "nobody"], "nobody"),
            (["--then", "wc {}", "--gate", "each"], "cannot be used with --gate"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, hv, options, said):
        done = hv("run", *options, "--item", "x", "--", "echo", "{}")
        assert done.code != 0 and said in done.err and not done.out, done
        assert hv.json("stats")["total"] == 0

    def test_a_reduce_waits_for_the_last_decision(self, hv):
        args = ("--chunk-size", "1", "--gate", "each")
        run(hv, *args, then=(), code=10)
        assert not lines(hv, "begin reduce")
        hv("review", "b", "--approve")
        run(hv, *args, then=(), code=10)
        assert not lines(hv, "begin reduce")
        hv.ok("review", "b", "--approve")
        until(lambda: stages(hv)[1] == "done", "the reduce, without being run again")
        assert "put together 2 of 2" in run(hv, *args, then=()).out


class TestSeen:
    def test_the_picture_shows_the_stages(self, hv):
        for name in ("one-b", "two-a"):
            (hv.folder / f"hold-{name}").touch()
        (hv.folder / "items").write_text("a\nb\n")
        screen = hv.terminal(*words("--items", "items"), columns=100, rows=24)
        screen.wait_for("stage 1 1/2")
        screen.wait_for("reduce waiting")
        for name in ("one-b", "two-a"):
            (hv.folder / f"go-{name}").touch()
        screen.wait_for("put together 2 of 2")

    def test_the_report_has_the_stages_and_the_answer(self, hv):
        run(hv, items=["a", "<img>"])
        page = (hv.folder / hv.ok("report", "b").strip()).read_text()
        assert "<h2>Stages</h2>" in page and "put together 2 of 2" in page
        assert "<img" not in page and "&lt;img&gt;" in page

    @pytest.mark.parametrize(
        ("options", "part"),
        [
            ({"reduce": "false {}", "then": ()}, "reduce (exit code 1)"),
            ({"reduce": None, "then": ("false {result}",)}, "stage 2 (2 of 2)"),
        ],
    )
    def test_what_follows_and_fails_is_told_wherever_the_whole_is(self, hv, options, part):
        run(hv, code=9, **options)
        assert json.loads(run(hv, "--json", code=9, **options).out)["succeeded"] is False
        assert hv.json("summary", "b")["succeeded"] is False
        assert f"did not succeed: {part}" in hv.ok("summary", "b")
        page = (hv.folder / hv.ok("report", "b").strip()).read_text()
        assert f"Did not succeed: {part}" in page and "Everything succeeded" not in page


class TestAgents:
    @pytest.fixture
    def agents(self, hv):
        hv.equip()
        return hv

    def test_an_agent_puts_together_what_agents_found(self, agents):
        hv = agents
        (hv.folder / "sum.md").write_text("Put it all together. act-tells\n")
        args = [
            "run",
            "--name",
            "b",
            "--quiet",
            "--agent",
            "fake-claude",
            "--prompt",
            "Look at {item}. act-ok",
            "--reduce-prompt",
            "sum.md",
            "--reduce-agent",
            "fake-codex",
            "--item",
            "a",
            "--item",
            "b",
        ]
        done = hv(*args)
        assert done.code == 0 and "did tells" in done.out, done
        found = hv.json("summary", "b")["reduce"]
        assert found["state"] == "done" and found["result"]["summary"] == "did tells"
        told = json.loads((hv.folder / f"agents/provider/told-{found['id']}").read_text())
        assert "Put it all together" in told["prompt"] and found["results"] in told["prompt"]
        assert hv(*args).code == 0
        shown = hv.json("show", found["id"])["detail"]["task"]
        assert shown["attempts"] == 1

    def test_the_agent_of_the_run_is_the_one_of_the_reduce(self, agents):
        out = agents.ok(
            "run",
            "--dry-run",
            "--agent",
            "fake-claude",
            "--prompt",
            "Look. act-ok",
            "--reduce-prompt",
            "Sum it up. act-ok",
            "--item",
            "a",
        )
        assert "reduce: agent fake-claude" in out

    @pytest.mark.parametrize(
        ("options", "leave"),
        [
            ([], "edit"),
            (["--permissions", "read-only"], "read-only"),
            (["--propose"], "read-only"),
            (["--propose", "--permissions", "edit"], "edit"),
        ],
    )
    def test_an_agent_behind_a_command_may_do_what_was_asked_for(self, agents, options, leave):
        args = (
            "run",
            *options,
            "--name",
            "b",
            "--quiet",
            "--reduce-prompt",
            "Sum it up. act-ok",
            "--reduce-agent",
            "fake-claude",
            "--item",
            "a",
        )
        found = json.loads(agents.ok(*args, "--dry-run", "--json", "--", "echo", "{}"))
        assert found["reduce"]["permissions"] == leave
        assert agents(*args, "--", "echo", "{}").code == 0
        assert agents("skills", "new", "again", "--from", "b").code == 0
        said = "permissions:" in agents.ok("skills", "show", "again")
        assert said is (leave != ("read-only" if "--propose" in options else "edit"))
        again = json.loads(agents("run", "again", "--item", "a", "--dry-run", "--json").out)
        assert again["reduce"]["permissions"] == leave

    def test_what_is_for_an_agent_needs_one_still(self, agents):
        done = agents("run", "--permissions", "read-only", "--item", "a", "--", "echo", "{}")
        assert done.code == 2 and "works only with an agent" in done.err
        done = agents(
            "run",
            "--scratch",
            "--item",
            "a",
            "--reduce-prompt",
            "Sum it up. act-ok",
            "--reduce-agent",
            "fake-claude",
            "--",
            "echo",
            "{}",
        )
        assert done.code == 2 and "--scratch works only with an agent" in done.err


def test_summary_and_status_count_the_tasks_of_all_stages(hv):
    run(hv, items=["a", "b"])
    status, summary = hv.json("status", "b"), hv.json("summary", "b")
    assert summary["total"] == status["stats"]["total"] == 5
    assert summary["states"] == {"done": 5}
    assert (len(summary["tasks"]), summary["attempts"]) == (5, 5)
    assert "batch b" in hv.ok("summary", "b").splitlines()[0]
    assert hv.ok("summary", "b").splitlines()[0].endswith(": 5 tasks")
    assert hv.json("summary", "b reduce")["total"] == 1, "a later part stands for itself"
