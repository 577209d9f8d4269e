"""`hv run SKILL` and `hv skills`, with real runs: commands, functions and stand-in agents."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest

import hypervisor
from hypervisor.domain.run import spec_from
from hypervisor.operations.git_view import NOTHING

KEY = "sk-planted-in-the-environment-4711"


@pytest.fixture
def hv(project):
    """A project with three files, and config.toml knows the stand-ins for agents."""
    project.equip(KEY)
    (project.folder / "src" / "deep").mkdir(parents=True)
    for name in ("src/a.py", "src/b.py", "src/deep/c.py"):
        (project.folder / name).write_text(f"{name}\n")
    (project.folder / "src" / "notes.txt").write_text("not Python\n")
    return project


def skill(hv, name, front, body="Look at {item}. act-ok\n", where=".hypervisor/skills", **files):
    """A skill's folder; `files` by name, with _ for the dot."""
    folder = hv.folder / where / name
    folder.mkdir(parents=True)
    head = f"---\nname: {name}\ndescription: does {name}\n{front}\n---\n"
    (folder / "SKILL.md").write_text(head + body)
    for file, text in files.items():
        (folder / file.replace("_", ".")).write_text(text)
        (folder / file.replace("_", ".")).chmod(0o755)
    return folder


def ran(hv, *args, code=0, stdin=""):
    """The tasks of the batch that `hv run` made, by title, and what it said."""
    done = hv("run", "--quiet", *args, stdin=stdin)
    assert done.code == code, done
    return {task["title"]: task for task in hv.tasks(batch_of(done))}, done


def spec_of(hv, done):
    return spec_of_batch(hv, batch_of(done))


def batch_of(done):
    found = re.search(r"batch (\S+):", done.err)
    assert found is not None, done
    return found[1]


def spec_of_batch(hv, name):
    with hypervisor.open(hv.folder / ".hypervisor") as opened:
        return spec_from(opened.store.batch(name).spec)


def output(hv, task):
    return hv.ok("logs", task["id"])


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
            hv, "find", 'run: {command: [./find.sh, "{what}", "{path}"]}\nitems: {file: l.jsonl}',
            find_sh='#!/bin/sh\necho "$1 in $2"\n',
            l_jsonl='{"item": "one", "what": "x"}\n{"item": "two", "what": "y"}\n',
        )  # fmt: skip
        tasks, done = ran(hv, "find", "src")
        assert {name: output(hv, task) for name, task in tasks.items()} == {
            "one": "x in src\n", "two": "y in src\n"
        }  # fmt: skip
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

        given = ("--type", "other", "--priority", "medium", "--workers", "1", "--strategy", "auto",
                 "--retries", "0", "--requires", "tpu", "--chunk-by", "item", "--gate", "none",
                 "--timeout", "7s", "--detach")  # fmt: skip
        hv("run", "s", "--item", "a", *given, "--name", "given")
        spec = spec_of_batch(hv, "given")
        assert (spec.workers, spec.strategy, spec.gate, spec.time) == (1, "auto", "none", 7_000)
        assert spec.memory == 1 << 30  # nobody said otherwise
        task = hv.task(hv.tasks("given")[0]["id"])
        assert (task["type"], task["priority"], task["retries"]) == ("other", "medium", 0)
        assert task["requires"] == ["tpu"]

        hv("run", "s", "--item", "a", "--detach", "--name", "plain")
        spec = spec_of_batch(hv, "plain")
        assert (spec.workers, spec.strategy, spec.gate, spec.time) == (3, "parallel", "each", 300e3)
        task = hv.task(hv.tasks("plain")[0]["id"])
        assert (task["type"], task["priority"], task["retries"]) == ("check", "high", 2)
        assert task["requires"] == ["gpu"]

    def test_without_a_type_it_is_the_skills_name(self, hv):
        skill(hv, "s", "run: {command: [echo]}")
        assert hv.task(ran(hv, "s", "--item", "a")[0]["a"]["id"])["type"] == "s"

    def test_a_second_run_goes_on_with_the_batch_and_another_command_makes_another(self, hv):
        folder = skill(hv, "s", "run: {command: [echo]}\nitems: {glob: '*.py'}")
        _, first = ran(hv, "s", "src")
        _, again = ran(hv, "s", "src")
        assert "2 already done, skipped" in again.err
        text = (folder / "SKILL.md").read_text()
        (folder / "SKILL.md").write_text(text.replace("echo", "cat"))
        _, other = ran(hv, "s", "src")
        assert "already done" not in other.err
        assert spec_of(hv, first).command == ("echo",)
        assert spec_of(hv, other).command == ("cat",)

    def test_one_more_command_at_the_end(self, hv):
        skill(
            hv, "s", 'run: {command: [echo, "{}"]}\nitems: {glob: "*.py"}\n'
            'reduce: {command: [./count.sh, "{}"]}',
            count_sh="#!/bin/sh\nwc -l < $1 > counted\n",
        )  # fmt: skip
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


class TestAgents:
    def test_an_agent_is_told_the_text_of_the_skill(self, hv):
        skill(hv, "s", "run: {agent: fake-claude}\nitems: {glob: '*.py'}\npermissions: read-only")
        tasks, done = ran(hv, "s", "src")
        assert {task["state"] for task in tasks.values()} == {"done"}
        spec = spec_of(hv, done)
        assert (spec.agent, spec.permissions) == ("fake-claude", "read-only")
        assert spec.prompt == "Look at {item}. act-ok\n"

    def test_any_agent_is_one_that_is_here_and_another_can_be_named(self, hv):
        skill(hv, "s", "run: {agent: any}\nitems: {file: l.txt}\nprompt: p.md",
              l_txt="one\n", p_md="Search {path} for {item}. act-ok")  # fmt: skip
        _, done = ran(hv, "s", "src")
        assert spec_of(hv, done).agent == "auto"
        assert set(spec_of(hv, done).agents) <= {"fake-claude", "fake-codex", "fake-gemini"}
        _, named = ran(hv, "s", "src", "--agent", "fake-codex", "--name", "other")
        assert spec_of(hv, named).agents == ("fake-codex",)
        shown = hv("run", "s", "src", "--agent", "fake-claude", "--dry-run").out
        assert "Search `src` for `one`" in shown

    def test_another_agent_gets_nothing_that_is_the_first_ones(self, hv):
        skill(hv, "s", "run: {agent: fake-claude}\nmodel: opus\nfallback: fake-codex\n"
              "allow: [Bash]\nitems: {file: l.txt}", l_txt="one\n")  # fmt: skip
        _, own = ran(hv, "s")
        assert spec_of(hv, own).model == "opus"
        _, done = ran(hv, "s", "--agent", "fake-codex", "--name", "other")
        spec = spec_of(hv, done)
        assert (spec.agent, spec.model, spec.fallback, spec.allow) == ("fake-codex", "", "", ())

    def test_a_budget_holds_for_the_reduce_too(self, hv):
        skill(hv, "s", "run: {agent: fake-claude}\nitems: {file: l.txt}\nlimits: {budget: 5}\n"
              "reduce: {agent: any, prompt: sum.md}", sum_md="act-ok", l_txt="one\n")  # fmt: skip
        _, done = ran(hv, "s")
        assert spec_of_batch(hv, f"{batch_of(done)} reduce").budget == 5_000_000

    def test_an_agent_puts_the_results_together(self, hv):
        skill(hv, "s", "run: {agent: fake-claude}\nitems: {glob: '*.py'}\n"
              "reduce: {agent: fake-claude, prompt: sum.md}", sum_md="Sum up. act-ok")  # fmt: skip
        _, done = ran(hv, "s", "src")
        shown = hv.json("skills", "show", "s")
        assert shown["view"]["record"]["runs"] == 1
        assert shown["view"]["record"]["tasks"] == 3  # two files and the sum
        assert shown["view"]["record"]["cost_micros"] == 300_000
        assert spec_of(hv, done).skill == "s"

    def test_whoever_works_on_the_items_puts_them_together(self, hv):
        skill(hv, "s", "run: {agent: any}\nitems: {file: l.txt}\n"
              "reduce: {agent: any, prompt: sum.md}", sum_md="act-ok", l_txt="one\n")  # fmt: skip
        _, done = ran(hv, "s", "--agent", "fake-codex")
        assert spec_of(hv, done).agents == ("fake-codex",)
        assert spec_of_batch(hv, f"{batch_of(done)} reduce").agents == ("fake-codex",)

    def test_a_command_can_be_summed_up_by_any_agent(self, hv):
        skill(hv, "s", "run: {command: [echo]}\nitems: {file: l.txt}\n"
              "reduce: {agent: any, prompt: sum.md}", sum_md="act-ok", l_txt="one\n")  # fmt: skip
        _, done = ran(hv, "s")
        assert spec_of_batch(hv, f"{batch_of(done)} reduce").agent == "auto"

    def test_in_place_of_the_only_agent_its_options_are_not_meant(self, hv):
        skill(hv, "s", "run: {command: [echo]}\nreduce: {agent: fake-claude, prompt: sum.md}\n"
              "permissions: read-only\nmodel: sonnet\nallow: [Bash]\nfallback: fake-codex\n"
              "limits: {budget: 5}", sum_md="act-ok")  # fmt: skip
        _, done = ran(hv, "s", "--item", "a", "--name", "cat", "--reduce", "cat {}")
        assert spec_of_batch(hv, f"{batch_of(done)} reduce").command == ("cat", "{}")
        assert hv("run", "s", "--item", "a", "--reduce", "cat {}", "--budget", "1").code == 2
        _, done = ran(hv, "s", "--item", "a", "--name", "own")
        found = spec_of_batch(hv, f"{batch_of(done)} reduce")
        assert (found.model, found.allow) == ("sonnet", ("Bash",))
        _, done = ran(hv, "s", "--item", "a", "--name", "other", "--reduce-agent", "fake-codex")
        found = spec_of_batch(hv, f"{batch_of(done)} reduce")
        assert (found.agent, found.model, found.allow, found.fallback) == ("fake-codex", "", (), "")
        assert (found.permissions, found.budget) == ("read-only", 5_000_000)

    def test_what_does_not_go_together_is_said(self, hv):
        skill(hv, "s", "run: {command: [echo]}")
        assert "runs a command" not in hv.refused(2, "run", "s", "--agent", "x", "--item", "a")
        assert "--fn" in hv.refused(2, "run", "s", "--fn", "a:b", "--item", "a")
        assert "--prompt goes with an agent" in hv("run", "s", "--prompt", "x y").err


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

    def test_a_program_that_is_no_skill_runs_as_before(self, hv):
        assert list(ran(hv, "--item", "a", "echo")[0]) == ["a"]

    def test_the_nearest_name_is_offered(self, hv):
        skill(hv, "check-links", "run: {command: [echo]}")
        assert "Did you mean check-links?" in hv.refused(2, "run", "check-link", "x")
        assert "Did you mean check-links?" in hv.refused(4, "skills", "show", "check-link")
        assert "no skill 'zzz'" in hv.refused(4, "skills", "show", "zzz")
        assert hv.refused(2, "skills", "show", "../../etc")

    def test_a_file_that_leads_out_of_the_folder_is_refused(self, hv):
        (hv.folder / "secret").write_text("secret: act-ok")
        folder = skill(hv, "s", "run: {agent: fake-claude}\nprompt: p.md\nitems: {file: l.txt}",
                       l_txt="a\n")  # fmt: skip
        (folder / "p.md").symlink_to(hv.folder / "secret")
        assert "p.md leads out of the skill's folder" in hv.refused(2, "run", "s")
        (folder / "p.md").unlink()
        assert "p.md cannot be read: No such file" in hv.refused(2, "run", "s")
        os.mkfifo(folder / "p.md")
        assert "no regular file" in hv.refused(2, "run", "s")

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
        "args", [["show"], ["new", "x"], ["new", "--from", "b"], ["--from", "b"], ["--user"],
                 ["show", "triage", "--dry-run"], ["new", "X", "--from", "b"], ["x"]],
    )  # fmt: skip
    def test_what_makes_no_sense_is_said(self, hv, args):
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
        """The spec of a batch, and that of the skill's made of it, but for what must differ."""
        first = spec_of(hv, done)
        made = hv.json("skills", "new", skill, "--from", batch_of(done))
        tasks, second = ran(hv, skill, *args)
        assert f"skill {skill}: this project" in second.err
        return first, spec_of(hv, second)._replace(skill=first.skill), made, tasks

    def test_a_command_comes_out_the_same(self, hv):
        (hv.folder / "x.sh").write_text('#!/bin/sh\necho "$1" | tr a-z A-Z\n')
        (hv.folder / "x.sh").chmod(0o755)
        before, done = ran(hv, "--items", "src/*.py", "--timeout", "90s", "--workers", "2",
                           "--chunk-size", "1", "--type", "shout", "--retries", "1",
                           "--", "./x.sh", "{}")  # fmt: skip
        first, second, made, tasks = self.again(hv, done, "src")
        copied = str(hv.folder / ".hypervisor/skills/mine/x.sh")
        assert second._replace(command=()) == first._replace(command=())
        assert second.command == (copied, "{}")
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
        _, done = ran(hv, "--items", "rows.jsonl", "--shell", "--chunk-by", "kind",
                      "--", "./say.sh {} {kind} | tr x X")  # fmt: skip
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
        _, done = ran(hv, "--items", "inbox", "--fn", "own:f", "--chunk", "month",
                      "--write-back", "receipts")  # fmt: skip
        first, second, made, tasks = self.again(hv, done, "inbox")
        assert second == first
        text = made["files"]["SKILL.md"]
        assert "chunk: month" in text and "format: tasks" in text
        assert [task["result"] for task in tasks.values()] == ["T01", "T02"]

    def test_an_agent_with_its_prompt_budget_and_schema(self, hv):
        (hv.folder / "s.json").write_text('{"type": "object"}')
        _, done = ran(hv, "--agent", "fake-claude", "--prompt", "Look at {item}: act-ok\n# \u00e9",
                      "--items", "src/*.py", "--permissions", "read-only", "--budget", "5.25",
                      "--schema", "s.json", "--allow", "Bash(ls:*)", "--model", "m")  # fmt: skip
        first, second, made, tasks = self.again(hv, done, "src")
        assert second == first
        assert set(made["files"]) == {"SKILL.md", "prompt.md", "schema.json"}
        assert {task["state"] for task in tasks.values()} == {"done"}

    def test_an_agent_that_was_told_nothing_does_what_the_task_says(self, hv):
        _, done = ran(hv, "--agent", "fake-claude", "--item", "act-ok")
        first, second, _, _ = self.again(hv, done, "--item", "act-ok")
        assert second._replace(prompt="") == first

    def test_of_a_skills_batch_with_its_items_and_what_comes_at_the_end(self, hv):
        skill(
            hv, "old", 'run: {command: [./x.sh, "{}", "{path}"]}\nitems: {file: l.txt}\n'
            "reduce: {command: [wc, -l]}", x_sh='#!/bin/sh\necho "$@"\n', l_txt="one\ntwo\n",
        )  # fmt: skip
        _, done = ran(hv, "old", "src")
        _, _, made, tasks = self.again(hv, done, "src")
        assert set(made["files"]) == {"SKILL.md", "x.sh", "l.txt"}
        assert [output(hv, task) for task in tasks.values()] == ["one src\n", "two src\n"]
        assert "command: [wc, '-l']" in made["files"]["SKILL.md"]
        assert "type:" not in made["files"]["SKILL.md"]  # it was the other skill's name
        record = hv.json("skills", "show", "mine")["view"]["record"]
        assert (record["runs"], record["tasks"]) == (1, 3)

    def test_a_script_at_the_end_goes_along_and_one_between_is_named_whole(self, hv):
        for name in ("mid.sh", "end.sh"):
            (hv.folder / name).write_text("#!/bin/sh\necho $0\n")
            (hv.folder / name).chmod(0o755)
        ran(hv, "--item", "a", "--name", "b", "--then", "./mid.sh {}", "--reduce", "./end.sh {}",
            "--", "echo")  # fmt: skip
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
        assert "is there already" in hv.refused(5, "skills", "new", "mine", "--from", "b")
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
        assert "nothing runs" in hv.refused(2, "skills", "new", "mine", "--from", "b")

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
            "??", ".hypervisor/skills/mine/SKILL.md", "??", ".hypervisor/skills/mine/more/x.md"
        ]  # fmt: skip
