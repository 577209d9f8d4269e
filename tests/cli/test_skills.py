"""`hv run SKILL`, with real runs: commands, functions and stand-in agents."""

from __future__ import annotations

import json

import pytest

from hypervisor.runs.spec import agent_of
from tests.support.skilled import (
    batch_of,
    output,
    prepared,
    ran,
    skill,
    spec_of,
    spec_of_batch,
)


@pytest.fixture
def hv(project):
    return prepared(project)


class TestCommands:
    def test_a_folder_stands_for_what_fits_in_it_and_a_file_for_itself(self, hv):
        skill(hv, "say", 'run: {command: [echo, "{}"]}\nitems: {glob: "**/*.py"}')
        below, done = ran(hv, "say", "src")
        assert list(below) == ["src/a.py", "src/b.py", "src/deep/c.py"]
        assert {task["state"] for task in below.values()} == {"done"}
        assert output(hv, below["src/a.py"]) == "src/a.py\n"
        assert spec_of(hv, done).skill == "say"
        assert list(ran(hv, "say")[0]) == list(below)  # PATH is where we are
        assert list(ran(hv, "say", "src/b.py", "src/notes.txt")[0]) == ["src/b.py", "src/notes.txt"]
        assert list(ran(hv, "say", "src/d*/*.py")[0]) == ["src/deep/c.py"]
        assert list(ran(hv, "say", "-", stdin="x\ny\n")[0]) == ["x", "y"]
        assert list(ran(hv, "say", "--item", "z")[0]) == ["z"]

    def test_a_folder_with_a_pattern_for_a_name_is_a_folder(self, hv):
        skill(hv, "say", 'run: {command: [echo, "{}"]}\nitems: {glob: "*.py"}')
        (hv.folder / "a[b]*").mkdir()
        (hv.folder / "a[b]*" / "x.py").write_text("")
        assert list(ran(hv, "say", "a[b]*")[0]) == ["a[b]*/x.py"]

    def test_its_own_script_and_its_own_items_with_the_path(self, hv):
        skill(
            hv,
            "find",
            'run: {command: [./find.sh, "{what}", "{path}"]}\nitems: {file: l.jsonl}',
            find_sh='#!/bin/sh\necho "$1 in $2"\n',
            l_jsonl='{"item": "one", "what": "x"}\n{"item": "two", "what": "y"}\n',
        )
        tasks, done = ran(hv, "find", "src")
        assert {name: output(hv, task) for name, task in tasks.items()} == {
            "one": "x in src\n",
            "two": "y in src\n",
        }
        here, again = ran(hv, "find")
        assert output(hv, here["one"]) == "x in .\n"
        assert spec_of(hv, done).command == spec_of(hv, again).command
        assert "No such file" in hv.refused(2, "run", "find", "nowhere")
        assert "one folder" in hv.refused(2, "run", "find", "src", "src/deep")

    def test_a_script_that_cannot_be_run_is_refused_before_anything_starts(self, hv):
        folder = skill(hv, "s", "run: {command: [./x.sh]}", x_sh="#!/bin/sh\n")
        (folder / "x.sh").chmod(0o644)
        assert "chmod +x" in hv.refused(2, "run", "s", "--item", "a")

    def test_what_is_given_wins_over_what_the_skill_says(self, hv):
        front = """run: {command: [echo]}
type: check
priority: high
workers: 3
strategy: parallel
retries: 2
requires: [gpu]
chunk-size: 1
gate: each
limits: {timeout: 5m, memory: 1G}
"""
        skill(hv, "s", front)
        args = ("--item", "a", "--item", "b", "--dry-run", "--json")
        planned = hv("run", "s", *args)
        assert json.loads(planned.out)["commands"] == [["echo", "a"], ["echo", "b"]]

        given = (
            "--type",
            "other",
            "--priority",
            "medium",
            "--workers",
            "1",
            "--strategy",
            "auto",
            "--retries",
            "0",
            "--requires",
            "tpu",
            "--chunk-by",
            "item",
            "--gate",
            "none",
            "--timeout",
            "7s",
            "--detach",
        )
        hv("run", "s", "--item", "a", *given, "--name", "given")
        spec = spec_of_batch(hv, "given")
        assert (spec.workers, spec.strategy, spec.gate, spec.limits.time) == (
            1,
            "auto",
            "none",
            7_000,
        )
        assert spec.limits.memory == 1 << 30  # nothing else was requested
        task = hv.task(hv.tasks("given")[0]["id"])
        assert (task["type"], task["priority"], task["retries"]) == ("other", "medium", 0)
        assert task["requires"] == ["tpu"]

        hv("run", "s", "--item", "a", "--detach", "--name", "plain")
        spec = spec_of_batch(hv, "plain")
        assert (spec.workers, spec.strategy, spec.gate, spec.limits.time) == (
            3,
            "parallel",
            "each",
            300e3,
        )
        task = hv.task(hv.tasks("plain")[0]["id"])
        assert (task["type"], task["priority"], task["retries"]) == ("check", "high", 2)
        assert task["requires"] == ["gpu"]

    def test_without_a_type_it_is_the_skills_name(self, hv):
        skill(hv, "s", "run: {command: [echo]}")
        assert hv.task(ran(hv, "s", "--item", "a")[0]["a"]["id"])["type"] == "s"

    def test_a_second_run_continues_with_the_batch_and_another_command_makes_another(self, hv):
        folder = skill(hv, "s", "run: {command: [echo]}\nitems: {glob: '*.py'}")
        _, first = ran(hv, "s", "src")
        _, again = ran(hv, "s", "src")
        assert "2 already done, skipped" in again.err
        text = (folder / "SKILL.md").read_text()
        (folder / "SKILL.md").write_text(text.replace("echo", "cat"))
        _, other = ran(hv, "s", "src")
        assert "already done" not in other.err
        assert spec_of(hv, first).command.argv == ("echo",)
        assert spec_of(hv, other).command.argv == ("cat",)

    def test_one_more_command_at_the_end(self, hv):
        skill(
            hv,
            "s",
            'run: {command: [echo, "{}"]}\nitems: {glob: "*.py"}\n'
            'reduce: {command: [./count.sh, "{}"]}',
            count_sh="#!/bin/sh\nwc -l < $1 > counted\n",
        )
        ran(hv, "s", "src")
        assert (hv.folder / "counted").read_text().strip() == "2"

    def test_the_path_may_come_behind_options(self, hv):
        skill(hv, "say", 'run: {command: [echo, "{}"]}\nitems: {glob: "*.py"}')
        assert list(ran(hv, "say", "--workers", "1", "src")[0]) == ["src/a.py", "src/b.py"]
        assert "unrecognized" in hv.refused(2, "run", "echo", "--workers", "1", "src")


class TestFunctions:
    def test_a_function_gets_the_items_as_a_plain_run_would_give_them(self, hv):
        (hv.folder / "own.py").write_text("def f(item):\n    return {'title': item['title']}\n")
        (hv.folder / "inbox").mkdir()
        (hv.folder / "inbox" / "a.md").write_text("---\ntitle: Ha\n---\n")
        skill(hv, "s", "run: {function: 'own:f'}\nitems: {format: tasks}\nwrite-back: none")
        tasks, _ = ran(hv, "s", "inbox")
        assert [task["result"] for task in tasks.values()] == [{"title": "Ha"}]

    def test_triage_is_a_skill_like_any_other(self, hv):
        (hv.folder / "inbox").mkdir()
        (hv.folder / "inbox" / "a.md").write_text("---\nproject: Web\n---\nrename it\n")
        tasks, done = ran(hv, "triage", "inbox")
        assert "[[Web]]" in (hv.folder / "inbox" / "a.md").read_text()
        assert spec_of(hv, done).skill == "triage"
        assert hv.task(next(iter(tasks.values()))["id"])["type"] == "triage"
        assert "skill" not in done.err  # built in: nothing to tell

    @pytest.mark.parametrize("name", ["triage.toml", "mail-classify.toml"])
    def test_a_mistake_in_the_rules_is_reported_once_and_nothing_starts(self, hv, name):
        (hv.folder / "inbox").write_text("From a\nSubject: x\n\nx\n")
        (hv.folder / name).write_text("[naems]\nperson = 'ann'\n")
        skill_name = name.removesuffix(".toml")
        error = hv.refused(2, "run", skill_name, "inbox")
        assert f"{hv.folder / name}: [naems] is unknown" in error
        assert not hv.store.exists() or hv.json("ls") == []


class TestAgents:
    def test_an_agent_is_told_the_text_of_the_skill(self, hv):
        skill(hv, "s", "run: {agent: fake-claude}\nitems: {glob: '*.py'}\npermissions: read-only")
        tasks, done = ran(hv, "s", "src")
        assert {task["state"] for task in tasks.values()} == {"done"}
        agent = agent_of(spec_of(hv, done))
        assert (agent.name, agent.permissions) == ("fake-claude", "read-only")
        assert agent.prompt == "Look at {item}. act-ok\n"

    def test_any_agent_is_one_that_is_here_and_another_can_be_named(self, hv):
        skill(
            hv,
            "s",
            "run: {agent: any}\nitems: {file: l.txt}\nprompt: p.md",
            l_txt="one\n",
            p_md="Search {path} for {item}. act-ok",
        )
        _, done = ran(hv, "s", "src")
        agent = agent_of(spec_of(hv, done))
        assert agent.name == "auto"
        assert set(agent.agents) <= {
            "fake-claude",
            "fake-codex",
            "fake-gemini",
        }
        _, named = ran(hv, "s", "src", "--agent", "fake-codex", "--name", "other")
        assert agent_of(spec_of(hv, named)).agents == ("fake-codex",)
        shown = hv("run", "s", "src", "--agent", "fake-claude", "--dry-run").out
        assert "Search `src` for `one`" in shown

    def test_another_agent_gets_nothing_that_is_the_first_ones(self, hv):
        skill(
            hv,
            "s",
            "run: {agent: fake-claude}\nmodel: opus\nfallback: fake-codex\n"
            "allow: [Bash]\nitems: {file: l.txt}",
            l_txt="one\n",
        )
        _, own = ran(hv, "s")
        assert agent_of(spec_of(hv, own)).model == "opus"
        _, done = ran(hv, "s", "--agent", "fake-codex", "--name", "other")
        agent = agent_of(spec_of(hv, done))
        assert (agent.name, agent.model, agent.fallback, agent.allow) == ("fake-codex", "", "", ())

    def test_a_budget_holds_for_the_reduce_too(self, hv):
        skill(
            hv,
            "s",
            "run: {agent: fake-claude}\nitems: {file: l.txt}\nlimits: {budget: 5}\n"
            "reduce: {agent: any, prompt: sum.md}",
            sum_md="act-ok",
            l_txt="one\n",
        )
        _, done = ran(hv, "s")
        assert agent_of(spec_of_batch(hv, f"{batch_of(done)} reduce")).budget == 5_000_000

    def test_an_agent_puts_the_results_together(self, hv):
        skill(
            hv,
            "s",
            "run: {agent: fake-claude}\nitems: {glob: '*.py'}\n"
            "reduce: {agent: fake-claude, prompt: sum.md}",
            sum_md="Sum up. act-ok",
        )
        _, done = ran(hv, "s", "src")
        shown = hv.json("skills", "show", "s")
        assert shown["view"]["record"]["runs"] == 1
        assert shown["view"]["record"]["tasks"] == 3  # two files and the sum
        assert shown["view"]["record"]["cost"] == 0.3
        assert spec_of(hv, done).skill == "s"

    def test_the_agent_of_the_items_also_reduces(self, hv):
        skill(
            hv,
            "s",
            "run: {agent: any}\nitems: {file: l.txt}\nreduce: {agent: any, prompt: sum.md}",
            sum_md="act-ok",
            l_txt="one\n",
        )
        _, done = ran(hv, "s", "--agent", "fake-codex")
        assert agent_of(spec_of(hv, done)).agents == ("fake-codex",)
        assert agent_of(spec_of_batch(hv, f"{batch_of(done)} reduce")).agents == ("fake-codex",)

    def test_a_command_can_be_summed_up_by_any_agent(self, hv):
        skill(
            hv,
            "s",
            "run: {command: [echo]}\nitems: {file: l.txt}\nreduce: {agent: any, prompt: sum.md}",
            sum_md="act-ok",
            l_txt="one\n",
        )
        _, done = ran(hv, "s")
        assert agent_of(spec_of_batch(hv, f"{batch_of(done)} reduce")).name == "auto"

    def test_in_place_of_the_only_agent_its_options_are_not_meant(self, hv):
        skill(
            hv,
            "s",
            "run: {command: [echo]}\nreduce: {agent: fake-claude, prompt: sum.md}\n"
            "permissions: read-only\nmodel: sonnet\nallow: [Bash]\nfallback: fake-codex\n"
            "limits: {budget: 5}",
            sum_md="act-ok",
        )
        _, done = ran(hv, "s", "--item", "a", "--name", "cat", "--reduce", "cat {}")
        assert spec_of_batch(hv, f"{batch_of(done)} reduce").command.argv == ("cat", "{}")
        assert hv("run", "s", "--item", "a", "--reduce", "cat {}", "--budget", "1").code == 2
        _, done = ran(hv, "s", "--item", "a", "--name", "own")
        found = agent_of(spec_of_batch(hv, f"{batch_of(done)} reduce"))
        assert (found.model, found.allow) == ("sonnet", ("Bash",))
        _, done = ran(hv, "s", "--item", "a", "--name", "other", "--reduce-agent", "fake-codex")
        found = agent_of(spec_of_batch(hv, f"{batch_of(done)} reduce"))
        assert (found.name, found.model, found.allow, found.fallback) == ("fake-codex", "", (), "")
        assert (found.permissions, found.budget) == ("read-only", 5_000_000)

    def test_options_that_conflict_are_reported(self, hv):
        skill(hv, "s", "run: {command: [echo]}")
        assert "already runs a command" in hv.refused(2, "run", "s", "--agent", "x", "--item", "a")
        assert "--fn" in hv.refused(2, "run", "s", "--fn", "a:b", "--item", "a")
        assert "--prompt works only with an agent" in hv("run", "s", "--prompt", "x y").err
