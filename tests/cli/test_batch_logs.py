"""`hv logs BATCH`, and commands that take the latest batch where none is named."""

import json
import shutil

import pytest

from tests.cli.running import held, run

WORK = ["--", "sh", "-c", 'printf "out $1"; [ $1 != b ]', "sh"]


@pytest.fixture
def hv(project):
    return project


def blocks(text):
    """What is below each heading, by the item in it."""
    parts = [part.partition(" <==\n") for part in text.split("==> ")[1:]]
    return {head.split()[1]: body for head, _, body in parts}


class TestLogs:
    def test_all_tasks_of_a_batch_with_headings(self, hv):
        run(hv, "-q", "--name", "b", *WORK, items="abc", code=9)
        told = hv.ok("logs", "b")
        assert blocks(told) == {item: f"out {item}\n" for item in "abc"}
        assert "  b (failed, exit code 1) <==" in told

    def test_only_what_failed(self, hv):
        told = run(hv, "-q", "--name", "b", *WORK, items="ab", code=9)
        assert "hv logs" in told
        assert blocks(hv.ok("logs", "b", "--failed")) == {"b": "out b\n"}

    def test_as_json_a_line_for_each_task(self, hv):
        run(hv, "-q", "--name", "b", *WORK, items="ab", code=9)
        lines = [json.loads(line) for line in hv.ok("logs", "b", "--json").splitlines()]
        assert [line["text"] for line in lines] == ["out a", "out b"]

    def test_following_prints_what_finishes_until_all_has(self, hv):
        held(hv, "b", "ab")
        with hv.start("logs", "b", "--follow") as process:
            (hv.folder / "open").touch()
            told = process.communicate()[0]
            assert process.returncode == 0
        assert blocks(told) == {item: f"begun {item}\nover {item}\n" for item in "ab"}

    def test_outputs_that_are_gone_are_an_error(self, hv):
        run(
            hv, "-q", "--name", "b", "--", "sh", "-c", "[ $1 = b ] || echo out $1", "sh", items="ab"
        )
        shutil.rmtree(hv.folder / ".hypervisor" / "outputs")
        done = hv("logs", "b")
        assert done.code == 4 and done.err.count("no output stored here") == 2
        silent = next(task["id"] for task in hv.tasks("b") if task["title"] == "b")
        hv.ok("add", "--batch", "by hand", "x")
        hv.ok("done", hv.claim("--batch", "by hand"))
        assert hv("logs", "by hand").code == 0, "nothing was ever printed"
        assert hv("logs", silent).code == 4

    def test_a_task_of_it_still_has_its_own_log(self, hv):
        run(hv, "-q", "--name", "b", *WORK, items="a")
        (task,) = hv.tasks("b")
        assert hv.ok("logs", task["id"]) == hv.ok("logs", task["id"][:-1]) == "out a"

    @pytest.mark.parametrize(
        "args", [["b", "--attempt", "1"], ["b", "--patch"], ["nothing-of-that-name"]]
    )
    def test_what_cannot_be_is_one_clear_line(self, hv, args):
        run(hv, "-q", "--name", "b", *WORK, items="a")
        done = hv("logs", *args)
        assert done.code in (2, 4) and done.err.count("\n") == 1 and done.out == ""

    def test_failed_needs_a_batch(self, hv):
        run(hv, "-q", "--name", "b", *WORK, items="a")
        (task,) = hv.tasks("b")
        assert "--failed" in hv.refused(2, "logs", task["id"], "--failed")


class TestLatest:
    def test_the_batch_that_was_run_last(self, hv):
        for name in ("first", "second"):
            run(hv, "-q", "--name", name, *WORK, items="a")
        assert hv.json("summary")["batch"] == hv.json("status")["batch"]["name"] == "second"
        run(hv, "-q", "--name", "first", *WORK, items="ac")
        assert hv.json("summary")["batch"] == "first"
        assert set(blocks(hv.ok("logs"))) == {"a", "c"}
        assert hv.json("report")["batch"] == "first"

    def test_a_batch_that_was_made_otherwise(self, hv):
        run(hv, "-q", "--name", "run", *WORK, items="a")
        hv.ok("add", "--batch", "added", "a task")
        assert hv.json("summary")["batch"] == "added"

    def test_of_a_pipeline_the_whole(self, hv):
        run(
            hv,
            "-q",
            "--name",
            "b",
            "--then",
            "cat {output}",
            "--reduce",
            "cat {}",
            *WORK,
            items="a",
        )
        assert hv.json("summary")["batch"] == "b"

    def test_a_person_is_told_which_one(self, hv):
        run(hv, "-q", "--name", "pages", *WORK, items="a")
        terminal = hv.terminal("summary")
        assert terminal.wait() == 0
        assert terminal.screen.text.startswith("latest batch: pages\nbatch pages (")
        assert hv("summary").err == ""

    def test_everything_is_still_there_to_see(self, hv):
        hv.ok("add", "by hand")
        run(hv, "-q", "--name", "b", *WORK, items="a")
        shown = hv.ok("status")
        assert shown.startswith("batch b: 1 task\n") and "1 open task elsewhere" in shown
        assert hv.ok("status", "--all").startswith("everything: 2 tasks\n")
        assert hv.refused(2, "status", "b", "--all")

    def test_without_any_batch(self, hv):
        assert hv.ok("status").startswith("everything: 0 tasks")
        for command in ("summary", "report", "logs"):
            assert "hv run" in hv.refused(4, command)

    def test_the_one_that_waits_is_reviewed_and_several_are_listed(self, hv):
        gated = ["-q", "--chunk-size", "1", "--gate", "each"]
        run(hv, *gated, "--name", "b", *WORK, items="ac", code=10)
        run(hv, "-q", "--name", "later", *WORK, items="a")
        assert hv.ok("review") == hv.ok("review", "b")
        assert hv.ok("review", "--list").startswith("chunk 1 ")
        assert "no batch given" in hv.refused(2, "review", "--approve")
        run(hv, *gated, "--name", "other", *WORK, items="ac", code=10)
        assert {batch["batch"] for batch in hv.json("review")} == {"b", "other"}
        assert "hv review BATCH" in hv.ok("review")
