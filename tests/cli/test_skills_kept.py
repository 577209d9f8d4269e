"""`hv skills`: where skills are found, how they are shown, and how a run becomes one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest

from hypervisor.core.gitignore import NOTHING
from tests.support.skilled import (
    batch_of,
    output,
    prepared,
    ran,
    skill,
    spec_of,
)
from tests.support.specs import changed


@pytest.fixture
def hv(project):
    return prepared(project)


class TestFinding:
    def test_the_project_hides_the_users_which_hides_the_built_in(self, hv):
        skill(hv, "triage", "run: {command: [echo, user]}", where=".config/hypervisor/skills")
        _, done = ran(hv, "triage", "--item", "a")
        assert "skill triage: your own, .config/hypervisor/skills/triage, instead of" in done.err
        skill(hv, "triage", "run: {command: [echo, project]}")
        tasks, done = ran(hv, "triage", "--item", "a", "--name", "n")
        assert "skill triage: this project, .hypervisor/skills/triage, instead of" in done.err
        assert output(hv, tasks["a"]) == "project a\n"
        listed = {each["name"]: each for each in hv.json("skills")}
        assert listed["triage"]["kind"] == "project"
        assert [os.path.basename(each) for each in listed["triage"]["hides"]] == ["triage"] * 2

    def test_the_users_folder_is_where_xdg_says(self, hv):
        skill(hv, "mine", "run: {command: [echo]}", where="conf/hypervisor/skills")
        assert "mine" not in hv.ok("skills", "--names").split()
        there = hv.ok("skills", "--names", XDG_CONFIG_HOME=str(hv.folder / "conf"))
        assert "mine" in there.split()
        assert "mine" not in hv.ok("skills", "--names", XDG_CONFIG_HOME="conf").split()

    def test_the_projects_are_found_from_below(self, hv):
        skill(hv, "say", 'run: {command: [echo, "{}"]}\nitems: {glob: "*.py"}')
        done = hv("run", "say", "--quiet", cwd=hv.folder / "src" / "deep")
        assert done.code == 0, done
        assert "/project/.hypervisor/skills/say" in done.err

    def test_after_two_dashes_it_is_a_command_and_no_skill_is_read(self, hv):
        skill(hv, "echo", "run: nonsense")
        assert list(ran(hv, "--item", "a", "--", "echo")[0]) == ["a"]
        told = hv.refused(2, "run", "echo", "--item", "a")
        assert ".hypervisor/skills/echo/SKILL.md: line 4: run must hold fields" in told

    def test_a_program_that_is_not_a_skill_runs_as_before(self, hv):
        assert list(ran(hv, "--item", "a", "echo")[0]) == ["a"]

    def test_the_nearest_name_is_offered(self, hv):
        skill(hv, "check-links", "run: {command: [echo]}")
        assert "Did you mean check-links?" in hv.refused(2, "run", "check-link", "x")
        assert "Did you mean check-links?" in hv.refused(4, "skills", "show", "check-link")
        assert "no skill named 'zzz'" in hv.refused(4, "skills", "show", "zzz")
        assert hv.refused(2, "skills", "show", "../../etc")

    def test_a_file_that_leads_out_of_the_folder_is_refused(self, hv):
        (hv.folder / "secret").write_text("secret: act-ok")
        folder = skill(
            hv, "s", "run: {agent: fake-claude}\nprompt: p.md\nitems: {file: l.txt}", l_txt="a\n"
        )
        (folder / "p.md").symlink_to(hv.folder / "secret")
        assert "p.md is outside the skill's folder" in hv.refused(2, "run", "s")
        (folder / "p.md").unlink()
        assert "p.md cannot be read: No such file" in hv.refused(2, "run", "s")
        os.mkfifo(folder / "p.md")
        assert "not a regular file" in hv.refused(2, "run", "s")

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
    def test_the_skill_of_another_user_is_refused(self, hv):
        folder = skill(hv, "s", "run: {command: [echo]}")
        os.chown(folder / "SKILL.md", 12345, 12345)
        assert "another user" in hv.refused(2, "run", "s", "--item", "a")


class TestLooking:
    def test_the_list_tells_origin_record_and_description(self, hv):
        skill(hv, "good", "run: {command: ['true']}")
        skill(hv, "bad", "run: {command: ['false']}")
        hv("run", "good", "--item", "a", "--item", "b", "--quiet")
        hv("run", "bad", "--item", "a", "--quiet")
        lines = {line.split()[0]: line for line in hv.ok("skills").splitlines()}
        assert re.search(r"project +1 run, 2 tasks, 100 % done +does good", lines["good"])
        assert re.search(r"project +1 run, 1 task, 0 % done +does bad", lines["bad"])
        assert re.search(r"built-in +never run +sort task files", lines["triage"])

    def test_one_that_cannot_be_read_is_told_beside_the_others(self, hv):
        skill(hv, "broken", "run: {command: [ls]}\nflavour: sweet\x1b[31m")
        done = hv("skills")
        assert done.code == 0 and "triage" in done.out
        assert "broken/SKILL.md: line" in done.err and "\x1b" not in done.err
        listed = {each["name"]: each for each in json.loads(hv("skills", "--json").out)}
        assert "line" in listed["broken"]["problem"] and not listed["triage"]["problem"]

    def test_show_has_fields_text_and_what_was_learned(self, hv):
        skill(hv, "s", "run: {command: ['true']}\nlimits: {timeout: 5m}", body="How to use it.\n")
        hv("run", "s", "--item", "a", "--quiet")
        shown = hv.ok("skills", "show", "s")
        assert "s: does s\n" in shown and "limits: timeout 5m" in shown
        assert "1 run, 1 task, 100 % done" in shown and "How to use it." in shown
        details = hv.json("skills", "show", "s")
        assert details["fields"]["run"] == {"command": ["true"]}
        assert len(details["batches"]) == 1

    @pytest.mark.parametrize("columns", [80, 160])
    def test_on_a_terminal_no_word_is_torn_and_no_record_cut(self, hv, columns):
        text = "Some words that make a line which no terminal has any room for. " * 4
        skill(hv, "s", "run: {command: ['true']}", body=text.strip())
        hv("run", "s", "--item", "a", "--quiet")
        listed = hv.terminal("skills", columns=columns, rows=60)
        assert listed.wait() == 0
        assert "1 run, 1 task, 100 % done" in listed.screen.text
        shown = hv.terminal("skills", "show", "s", columns=columns, rows=60)
        assert shown.wait() == 0
        assert {*text.split()} >= {*shown.screen.text.partition("Some")[2].split()}

    def test_on_a_terminal_lists_and_quotations_stay_as_they_are(self, hv):
        body = "1. one\n2. two\n\n> three\n> four\n\nfive\nsix\n"
        skill(hv, "s", "run: {command: ['true']}", body=body)
        shown = hv.terminal("skills", "show", "s", rows=60)
        assert shown.wait() == 0
        lines = [line.strip() for line in shown.screen.text.splitlines()]
        assert {"1. one", "2. two", "> three", "> four", "five six"} <= {*lines}

    def test_it_works_where_nothing_was_ever_run(self, bare):
        assert "triage" in bare.ok("skills", "--names").split()
        assert "never run" in bare.ok("skills", "show", "triage")
        assert not (bare.folder / ".hypervisor").exists()

    @pytest.mark.parametrize(
        "args",
        [
            ["show"],
            ["new", "x"],
            ["new", "--from", "b"],
            ["--from", "b"],
            ["--user"],
            ["show", "triage", "--dry-run"],
            ["new", "X", "--from", "b"],
            ["x"],
        ],
    )
    def test_what_makes_no_sense_is_refused(self, hv, args):
        assert hv.refused(2, "skills", *args)

    def test_names_are_completed(self, hv):
        script = hv.ok("completion", "bash")
        asked = f"{script}\nCOMP_WORDS=(hv run tri); COMP_CWORD=2; _hv; echo ${{COMPREPLY[@]}}"
        program = hv.folder / "bin" / "hv"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n[ $1 = skills ] && printf 'triage\\n$(rm -rf x)\\n'\n")
        program.chmod(0o755)
        path = f"{program.parent}:{os.defpath}"
        bash = shutil.which("bash")
        if bash is None:
            pytest.skip("there is no bash")
        done = subprocess.run([bash, "-c", asked], env={"PATH": path}, capture_output=True)
        assert done.stdout.decode().split() == ["triage"], done


class TestMaking:
    def again(self, hv, done, *args, skill="mine"):
        """The spec of a batch, and that of the skill made from it, except for what must differ."""
        first = spec_of(hv, done)
        made = hv.json("skills", "new", skill, "--from", batch_of(done))
        tasks, second = ran(hv, skill, *args)
        assert f"skill {skill}: this project" in second.err
        return first, spec_of(hv, second)._replace(skill=first.skill), made, tasks

    def test_a_command_comes_out_the_same(self, hv):
        (hv.folder / "x.sh").write_text('#!/bin/sh\necho "$1" | tr a-z A-Z\n')
        (hv.folder / "x.sh").chmod(0o755)
        before, done = ran(
            hv,
            "--items",
            "src/*.py",
            "--timeout",
            "90s",
            "--workers",
            "2",
            "--chunk-size",
            "1",
            "--type",
            "shout",
            "--retries",
            "1",
            "--",
            "./x.sh",
            "{}",
        )
        first, second, made, tasks = self.again(hv, done, "src")
        copied = str(hv.folder / ".hypervisor/skills/mine/x.sh")
        assert changed(second, command=first.command.argv) == first
        assert second.command.argv == (copied, "{}")
        assert list(made["files"]) == ["SKILL.md", "x.sh"]
        outputs = [output(hv, tasks[name]) for name in before]
        assert outputs == [output(hv, task) for task in before.values()]
        task = hv.task(tasks["src/a.py"]["id"])
        assert (task["type"], task["retries"]) == ("shout", 1)
        chunks = hv.json("summary", batch_of(done))["chunks"]
        assert [chunk["name"] for chunk in chunks] == ["1", "2"]

    def test_a_shell_script_with_rows(self, hv):
        rows = hv.folder / "rows.jsonl"
        (hv.folder / "say.sh").write_text('#!/bin/sh\necho "$@"\n')
        (hv.folder / "say.sh").chmod(0o755)
        rows.write_text('{"item": "a", "kind": "x y"}\n{"item": "b", "kind": "z"}\n')
        _, done = ran(
            hv,
            "--items",
            "rows.jsonl",
            "--shell",
            "--chunk-by",
            "kind",
            "--",
            "./say.sh {} {kind} | tr x X",
        )
        first, second, made, tasks = self.again(hv, done, "rows.jsonl")
        assert second == first
        assert "chunk-by: kind" in made["files"]["SKILL.md"]
        assert [output(hv, task) for task in tasks.values()] == ["a X y\n", "b z\n"]

    def test_a_function_over_task_files(self, hv):
        (hv.folder / "own.py").write_text("def f(item):\n    return item['title']\n")
        (hv.folder / "inbox").mkdir()
        for month in ("01", "02"):
            path = hv.folder / "inbox" / f"{month}.md"
            path.write_text(f"---\ntitle: T{month}\ndate: 2026-{month}-01\n---\n")
        _, done = ran(
            hv, "--items", "inbox", "--fn", "own:f", "--chunk", "month", "--write-back", "receipts"
        )
        first, second, made, tasks = self.again(hv, done, "inbox")
        assert second == first
        text = made["files"]["SKILL.md"]
        assert "chunk: month" in text and "format: tasks" in text
        assert [task["result"] for task in tasks.values()] == ["T01", "T02"]

    def test_an_agent_with_its_prompt_budget_and_schema(self, hv):
        (hv.folder / "s.json").write_text('{"type": "object"}')
        _, done = ran(
            hv,
            "--agent",
            "fake-claude",
            "--prompt",
            "Look at {item}: act-ok\n# \u00e9",
            "--items",
            "src/*.py",
            "--permissions",
            "read-only",
            "--budget",
            "5.25",
            "--schema",
            "s.json",
            "--allow",
            "Bash(ls:*)",
            "--model",
            "m",
        )
        first, second, made, tasks = self.again(hv, done, "src")
        assert second == first
        assert set(made["files"]) == {"SKILL.md", "prompt.md", "schema.json"}
        assert {task["state"] for task in tasks.values()} == {"done"}

    def test_an_agent_that_was_told_nothing_does_what_the_task_says(self, hv):
        _, done = ran(hv, "--agent", "fake-claude", "--item", "act-ok")
        first, second, _, _ = self.again(hv, done, "--item", "act-ok")
        assert changed(second, prompt="") == first

    def test_of_a_skills_batch_with_its_items_and_what_comes_at_the_end(self, hv):
        skill(
            hv,
            "old",
            'run: {command: [./x.sh, "{}", "{path}"]}\nitems: {file: l.txt}\n'
            "reduce: {command: [wc, -l]}",
            x_sh='#!/bin/sh\necho "$@"\n',
            l_txt="one\ntwo\n",
        )
        _, done = ran(hv, "old", "src")
        _, _, made, tasks = self.again(hv, done, "src")
        assert set(made["files"]) == {"SKILL.md", "x.sh", "l.txt"}
        assert [output(hv, tasks.pop(item)) for item in ("one", "two")] == [
            "one src\n",
            "two src\n",
        ]
        (reduce,) = tasks.values()
        assert output(hv, reduce).startswith("2 ")
        assert "command: [wc, '-l']" in made["files"]["SKILL.md"]
        assert "type:" not in made["files"]["SKILL.md"]  # it was the other skill's name
        record = hv.json("skills", "show", "mine")["view"]["record"]
        assert (record["runs"], record["tasks"]) == (1, 3)

    def test_a_script_at_the_end_goes_along_and_one_between_is_named_whole(self, hv):
        for name in ("mid.sh", "end.sh"):
            (hv.folder / name).write_text("#!/bin/sh\necho $0\n")
            (hv.folder / name).chmod(0o755)
        ran(
            hv,
            "--item",
            "a",
            "--name",
            "b",
            "--then",
            "./mid.sh {}",
            "--reduce",
            "./end.sh {}",
            "--",
            "echo",
        )
        made = hv.json("skills", "new", "mine", "--from", "b")
        assert set(made["files"]) == {"SKILL.md", "end.sh"}
        assert f"{hv.folder}/mid.sh" in made["files"]["SKILL.md"]
        ran(hv, "mine", "--item", "b")

    def test_nothing_is_overwritten_and_a_rehearsal_writes_nothing(self, hv):
        ran(hv, "--item", "a", "--name", "b", "--", "echo")
        told = hv.ok("skills", "new", "mine", "--from", "b", "--dry-run")
        assert "command: [echo]" in told and "nothing was written" in told
        folder = hv.folder / ".hypervisor" / "skills"
        assert not folder.exists()
        hv.ok("skills", "new", "mine", "--from", "b", "--description", "mine: really")
        before = (folder / "mine" / "SKILL.md").read_text()
        assert "description: 'mine: really'" in before
        assert "already exists" in hv.refused(5, "skills", "new", "mine", "--from", "b")
        assert (folder / "mine" / "SKILL.md").read_text() == before
        assert [path.name for path in folder.iterdir()] == ["mine"]
        assert hv.refused(4, "skills", "new", "other", "--from", "nothing")

    def test_for_all_projects_of_the_user(self, hv, tmp_path):
        ran(hv, "--item", "a", "--name", "b", "--", "echo")
        hv.ok("skills", "new", "mine", "--from", "b", "--user")
        assert (hv.folder / ".config/hypervisor/skills/mine/SKILL.md").exists()
        (tmp_path / "elsewhere").mkdir()
        done = hv("skills", "--names", cwd=tmp_path / "elsewhere")
        assert "mine" in done.out.split()

    def test_a_batch_that_nothing_runs_makes_none(self, hv):
        hv.ok("add", "x", "--batch", "b")
        assert "has no command, function or agent" in hv.refused(
            2, "skills", "new", "mine", "--from", "b"
        )

    def test_git_sees_the_skills_and_nothing_else(self, hv):
        ran(hv, "--item", "a", "--name", "b", "--", "echo")
        (hv.folder / ".hypervisor" / ".gitignore").write_text(NOTHING)  # of an older version
        hv.ok("skills", "new", "mine", "--from", "b")
        git = shutil.which("git")
        if git is None:
            pytest.skip("there is no git")
        (hv.folder / ".hypervisor" / "skills" / "mine" / "more").mkdir()
        (hv.folder / ".hypervisor" / "skills" / "mine" / "more" / "x.md").write_text("x")
        subprocess.run([git, "init", "-q"], cwd=hv.folder, check=True)
        asked = [git, "status", "--short", "-uall", "--", ".hypervisor"]
        seen = subprocess.run(asked, cwd=hv.folder, check=True, capture_output=True, text=True)
        assert seen.stdout.split() == [
            "??",
            ".hypervisor/skills/mine/SKILL.md",
            "??",
            ".hypervisor/skills/mine/more/x.md",
        ]
