"""Running again: what has changed since it was done, and what must not count as done."""

import json
import os

import pytest

from tests.cli.conftest import until
from tests.cli.running import run


@pytest.fixture
def hv(project):
    for name in "abc":
        (project.folder / f"{name}.txt").write_text(f"{name}\n")
    return project


def again(hv, *options, code=0, name="b", command=("cat",)):
    return run(hv, "--name", name, "--items", "*.txt", *options, "--", *command, code=code)


def attempts(hv, name="b"):
    return {task["title"][0]: task["attempts"] for task in hv.tasks(name)}


def declared(hv):
    return hv.ok("events", "--json").count('"kind": "declare"')


class TestFiles:
    def test_only_what_changed_is_run_again(self, hv):
        again(hv)
        assert again(hv) == "batch b: 3 items (3 already done, skipped)\n"
        (hv.folder / "b.txt").write_text("x\n")  # of the same size
        os.utime(hv.folder / "c.txt")
        opening = "3 items (2 already done, skipped; 1 changed since it was done, running again)"
        assert opening in again(hv)
        assert attempts(hv) == {"a": 1, "b": 2, "c": 1}
        assert again(hv) == "batch b: 3 items (3 already done, skipped)\n"
        for name in "ab":
            (hv.folder / f"{name}.txt").write_text("longer\n")
        assert "2 changed since they were done, running again" in again(hv)

    def test_rows_that_are_done_are_counted_once(self, hv):
        (hv.folder / "rows.csv").write_text("a\n1\n2\n")
        words = ("--name", "rows", "--items", "rows.csv", "--", "echo", "{a}")
        run(hv, *words)
        assert run(hv, *words) == "batch rows: 2 items (2 already done, skipped)\n"

    def test_everything_or_nothing_is_run_again(self, hv):
        again(hv)
        (hv.folder / "b.txt").write_text("x\n")
        assert again(hv, "--no-changed") == "batch b: 3 items (3 already done, skipped)\n"
        everything = again(hv, "--again")
        assert "3 items (3 already done, running again)" in everything
        assert "all runs of the batch" in everything  # that is what the attempts are of
        assert attempts(hv) == {"a": 2, "b": 2, "c": 2}
        assert hv("run", "--again", "--no-changed", "--", "true").code == 2

    def test_what_the_command_does_to_its_own_item_is_not_a_change(self, hv):
        edit = ("sed", "-i", "s/$/!/")
        again(hv, command=edit)
        assert "3 already done" in again(hv, command=edit)
        assert (hv.folder / "a.txt").read_text() == "a!\n"

    def test_an_item_that_was_consumed_is_run_again_when_it_is_back(self, hv):
        again(hv, command=["rm"])
        assert hv("run", "--name", "b", "--item", "a.txt", "--", "rm").code == 0
        (hv.folder / "a.txt").write_text("another\n")
        assert "1 changed since it was done" in again(hv, command=["rm"])

    def test_a_link_a_folder_and_a_word(self, hv):
        (hv.folder / "link").symlink_to("a.txt")
        (hv.folder / "folder").mkdir()
        options = ["--name", "b", "--item", "link", "--item", "folder", "--item", "word"]
        run(hv, *options, "--", "echo")
        (hv.folder / "folder" / "new").touch()
        assert "3 already done" in run(hv, *options, "--", "echo")
        (hv.folder / "a.txt").write_text("changed\n")
        assert "2 already done, skipped; 1 changed" in run(hv, *options, "--", "echo")

    def test_files_are_those_of_the_folder_it_runs_in(self, hv):
        inner = hv.folder / "inner"
        inner.mkdir()
        (inner / "a.txt").write_text("a\n")
        options = ["--name", "b", "--cwd", "inner", "--item", "a.txt"]
        run(hv, *options, "--", "cat")
        (hv.folder / "a.txt").write_text("not this one\n")
        assert "1 already done" in run(hv, *options, "--", "cat")
        (inner / "a.txt").write_text("this one\n")
        assert "1 changed" in run(hv, *options, "--", "cat")


class TestTaskFiles:
    RESULT = 'echo \'{"summary": "ok", "receipts": ["did it"]}\''

    def put(self, hv):
        folder = hv.folder / "tasks"
        folder.mkdir()
        for name in "ab":
            (folder / f"{name}.md").write_text(f"---\ntitle: {name}\nstatus: todo\n---\nDo it.\n")
        return folder

    def again(self, hv, *options):
        options = ("--name", "t", "--items", "tasks", "--result", "json", *options)
        return run(hv, *options, "--", "sh", "-c", self.RESULT)

    def test_what_we_wrote_is_not_a_change_and_what_the_owner_wrote_is(self, hv):
        folder = self.put(hv)
        self.again(hv)
        assert "did it" in (folder / "a.md").read_text()
        assert "0 to do, 2 skipped" in self.again(hv)
        text = (folder / "b.md").read_text()
        (folder / "b.md").write_text(text.replace("Do it.", "Do it well."))
        assert "1 to do" in hv.ok("preflight", "--items", "tasks", "--name", "t")
        assert "0 to do" in hv.ok("preflight", "--items", "tasks", "--name", "t", "--no-changed")
        assert "1 changed since it was done, running again" in self.again(hv)
        assert (folder / "b.md").read_text().count("did it") == 2
        assert "0 to do, 2 skipped" in self.again(hv)
        assert "2 already done, running again" in self.again(hv, "--again")
        assert {task["attempts"] for task in hv.tasks("t")} == {2, 3}

    def test_a_receipt_added_later_is_not_a_change(self, hv):
        folder = self.put(hv)
        self.again(hv)
        hv.ok("receipt", "add", hv.tasks("t")[0]["id"], "looked at it")
        assert "looked at it" in (folder / "a.md").read_text()
        assert "0 to do, 2 skipped" in self.again(hv)

    def test_an_applied_plan_is_not_a_change_nor_is_undoing_it(self, hv):
        folder = self.put(hv)
        edit = {"do": "edit", "path": "tasks/a.md", "set": {"priority": "high"}}
        script = f"case $1 in *a.md) echo '{json.dumps({'actions': [edit]})}';; *) echo 1;; esac"
        options = ["--name", "p", "--items", "tasks", "--result", "json", "--propose"]
        command = ["--", "sh", "-c", script, "sh"]
        run(hv, *options, *command)
        hv.ok("apply", "p", "--yes")
        assert "priority: high" in (folder / "a.md").read_text()
        assert "2 already done, skipped" in run(hv, *options, *command)
        hv.ok("undo", "p", "--yes")
        assert "priority" not in (folder / "a.md").read_text()
        assert "2 already done, skipped" in run(hv, *options, *command)


class TestPipelines:
    def test_a_stage_that_edits_the_item_does_not_run_the_first_again(self, hv):
        options = ["--then", "sed -i s/$/!/ {item}", "--reduce", "wc -l {}"]
        again(hv, *options)
        assert "3 already done" in again(hv, *options)
        assert (hv.folder / "a.txt").read_text() == "a!\n"

    def test_all_stages_of_a_changed_item_are_run_again(self, hv):
        options = ["--then", "sed -i s/$/!/ {item}", "--reduce", "wc -l {}"]
        again(hv, *options)
        (hv.folder / "b.txt").write_text("new\n")
        assert "1 changed" in again(hv, *options)
        assert (hv.folder / "b.txt").read_text() == "new!\n"
        assert (hv.folder / "a.txt").read_text() == "a!\n"
        again(hv, *options, "--again")
        assert (hv.folder / "a.txt").read_text() == "a!!\n"


class TestAgents:
    @pytest.mark.parametrize("act", ["act-ok", "act-mcp"])  # the second completes its task itself
    def test_what_changed_is_worked_on_again(self, hv, act):
        hv.equip()
        options = ["--name", "g", "--agent", "fake-claude", "--items", "*.txt"]
        run(hv, *options, "--prompt", act)
        assert "3 already done, skipped" in run(hv, *options, "--prompt", act)
        (hv.folder / "a.txt").write_text("changed\n")
        assert "2 already done, skipped; 1 changed" in run(hv, *options, "--prompt", act)
        assert attempts(hv, "g") == {"a": 2, "b": 1, "c": 1}
        assert "another prompt" in hv.refused(5, "run", *options, "--prompt", f"{act} now")
        options += ["--permissions", "read-only", "--budget", "5"]
        assert "3 already done, skipped" in run(hv, *options, "--prompt", act)


class TestAnotherCommand:
    def test_it_is_refused_unless_the_choice_is_explicit(self, hv):
        again(hv)
        args = ["run", "--name", "b", "--items", "*.txt", "--", "wc", "-c"]
        line = hv.refused(5, *args)
        assert "batch b was run with another command (`cat`), and 3 tasks of it are done" in line
        assert "--again" in line and "--no-changed" in line and "hv summary b" in line
        assert "3 already done" in again(hv, "--no-changed", command=["wc", "-c"])
        assert "3 already done" in again(hv, command=["wc", "-c"])
        assert "3 already done, running again" in again(hv, "--again", command=["wc", "-l"])

    @pytest.mark.parametrize(
        "options, what",
        [
            (["--shell"], "--shell"),
            (["--stdin", "item"], "--stdin"),
            (["--cwd", "/"], "folder"),
        ],
    )
    def test_other_ways_to_run_something_else(self, hv, options, what):
        run(hv, "--name", "b", "--item", "x", "--", "echo")
        line = hv.refused(5, "run", "--name", "b", "--item", "x", *options, "--", "echo")
        assert f"another {what}" in line

    def test_a_function_instead_of_a_command(self, hv):
        (hv.folder / "fun.py").write_text("def f(item):\n    return 1\n")
        run(hv, "--name", "b", "--item", "x", "--", "echo")
        line = hv.refused(5, "run", "--name", "b", "--item", "x", "--fn", "fun:f")
        assert "another command (`echo`)" in line

    def test_what_does_not_change_the_work_may_change(self, hv):
        again(hv)
        assert "3 already done" in again(hv, "--workers", "1", "--timeout", "5m", "--retries", "2")

    def test_as_long_as_nothing_is_done_it_may_be_anything(self, hv):
        again(hv, command=["false"], code=9)
        assert "3 failed before, retrying" in again(hv, command=["true"])

    def test_a_run_whose_batch_got_another_command_in_the_meantime_does_not_succeed(self, hv):
        hv.ok("pause", "--all")
        mine = hv.start("run", "--name", "b", "--item", "x", "--", "echo", "mine")
        until(lambda: declared(hv) == 1, "the batch is there")
        other = hv.start("run", "--name", "b", "--item", "x", "--", "echo", "other")
        until(lambda: declared(hv) == 2, "it has another command")
        hv.ok("resume", "--all")
        _, err = mine.communicate(timeout=120)
        assert mine.returncode == 9 and "batch b was also run with another command" in err
        other.communicate(timeout=120)
        assert other.returncode == 0 and "other" in hv.ok("logs", "b")

    def test_a_person_is_asked(self, hv):
        again(hv)
        terminal = hv.terminal("run", "--name", "b", "--items", "*.txt", "--", "wc", "-c")
        terminal.wait_for("[a] run everything again")
        terminal.press("a\n")
        terminal.wait_for("3 already done, running again")
        until(lambda: attempts(hv) == {"a": 2, "b": 2, "c": 2}, "all were run again")


class TestPauses:
    def test_a_pause_that_a_person_made_is_not_lifted(self, hv):
        again(hv)
        (hv.folder / "d.txt").touch()
        hv.ok("pause", "b", "--reason", "the disk is nearly full")
        line = hv.refused(5, "run", "--name", "b", "--items", "*.txt", "--", "cat")
        assert "batch b was paused by tester (the disk is nearly full)" in line
        assert "`hv resume b`" in line
        hv.ok("resume", "b")
        assert "1 new" in again(hv)

    def test_a_person_is_asked(self, hv):
        again(hv)
        (hv.folder / "d.txt").touch()
        hv.ok("pause", "b")
        terminal = hv.terminal("run", "--name", "b", "--items", "*.txt", "--", "cat")
        terminal.wait_for("resume it? [y/N]")
        terminal.press("y\n")
        terminal.wait_for("1 new")
        until(lambda: attempts(hv).get("d") == 1, "it was run")


class TestItems:
    def test_no_items_are_not_a_failure(self, hv):
        done = hv("run", "--items", "*.none", "--", "cat")
        assert done == (0, "", "hv: no items in *.none; nothing to run\n")
        assert "no items in standard input" in hv("run", "--", "cat", stdin="\n").err
        answer = json.loads(hv.ok("run", "--json", "--name", "b", "--items", "*.none", "--", "cat"))
        assert answer == {"batch": "b", "to_do": 0, "left_out": 0}
        line = hv.refused(2, "run", "--require-items", "--items", "*.none", "--", "cat")
        assert "no items in *.none" in line

    def test_a_broken_link_is_left_out_and_so_a_failure(self, hv):
        (hv.folder / "a.link").write_text("a")
        (hv.folder / "b.link").symlink_to("gone")
        done = hv("run", "--name", "r", "--items", "*.link", "--", "cat")
        assert done.code == 9 and "b.link" in done.err and "broken link" in done.err
        assert hv("run", "--name", "r", "--items", "*.link", "--skip-bad", "--", "cat").code == 0
        assert "broken link" in hv.refused(2, "add", "--glob", "*.link")

    def test_what_was_left_out_is_a_failure_unless_it_may_be(self, hv):
        (hv.folder / "rows.jsonl").write_text('"a"\n{\n')
        options = ["--name", "r", "--items", "rows.jsonl"]
        done = hv("run", *options, "--", "echo")
        assert done.code == 9 and "or add --skip-bad" in done.err
        done = hv("run", *options, "--skip-bad", "--", "echo")
        assert done.code == 0 and "Left out." in done.err
        (hv.folder / "rows.jsonl").write_text("{\n")
        assert hv("run", *options, "--", "echo").code == 9
        assert hv("run", *options, "--skip-bad", "--", "echo").code == 0


def test_an_item_in_the_inbox_is_not_run_and_the_run_does_not_succeed(hv):
    hv.ok("add", "--inbox", "--batch", "b", "--key", "x", "--", "x")
    shown = run(hv, "--name", "b", "--item", "x", "--item", "y", "--", "true", code=9)
    assert "✗ 1 done · 1 not run (in the inbox or in review)" in shown
