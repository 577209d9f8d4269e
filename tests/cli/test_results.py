"""`hv results`, and what `hv show` prints about how a task was run."""

import csv
import json
import shlex
from io import StringIO

import pytest

from tests.cli.running import run

JSON = ["--result", "json", "--", "sh", "-c", '[ $1 != c ] && echo "{\\"name\\": \\"$1\\"}"', "sh"]


@pytest.fixture
def hv(project):
    return project


class TestResults:
    def test_a_json_line_for_each_task_by_default(self, hv):
        run(hv, "-q", "--name", "b", *JSON, items="abc", code=9)
        rows = [json.loads(line) for line in hv.ok("results", "b").splitlines()]
        assert [(row["title"], row["state"], row["exit_code"]) for row in rows] == [
            ("a", "done", 0),
            ("b", "done", 0),
            ("c", "failed", 1),
        ]
        assert [row["result"] for row in rows] == [{"name": "a"}, {"name": "b"}, None]
        assert hv.json("results")["results"] == rows

    def test_members_of_a_result_are_columns_of_csv(self, hv):
        (hv.folder / "made.py").write_text(
            "def make(item):\n"
            "    return {'n': 1, 'x\\n': [item]} if item == 'a' else item + ',\"'\n"
        )
        run(hv, "-q", "--name", "b", "--fn", "made:make", items="ab")
        rows = list(csv.DictReader(StringIO(hv.ok("results", "b", "--format", "csv"))))
        assert [row["title"] for row in rows] == ["a", "b"]
        assert [row["result.n"] for row in rows] == ["1", ""]
        assert [row["result.x\n"] for row in rows] == ['["a"]', ""]
        assert [row["result"] for row in rows] == ["", 'b,"']

    def test_a_table_for_people(self, hv):
        run(hv, "-q", "--name", "b", *JSON, items="ac", code=9)
        terminal = hv.terminal("results", columns=80)
        assert terminal.wait() == 0
        lines = terminal.screen.text.splitlines()
        assert lines[0] == "latest batch: b"
        assert lines[1].split() == ["ID", "STATE", "EXIT", "TITLE", "RESULT"]
        assert lines[2].split()[1:] == ["done", "0", "a", '{"name":', '"a"}']
        assert lines[3].split()[1:] == ["failed", "1", "c", "exit", "code", "1"]

    def test_hostile_text_is_harmless_on_a_terminal(self, hv):
        (hv.folder / "made.py").write_text("def make(item):\n    return '\\x1b[2J\\x07evil'\n")
        run(hv, "-q", "--name", "b", "--fn", "made:make", items="a")
        for format in ("csv", "table", "jsonl"):
            terminal = hv.terminal("results", "--format", format)  # fails on what is not harmless
            assert terminal.wait() == 0 and "evil" in terminal.screen.text

    def test_two_formats_are_refused(self, hv):
        assert hv("results", "--json", "--format", "csv").code == 2


class TestShow:
    def test_the_command_line_as_it_was_run_and_its_exit_code(self, hv):
        run(hv, "-q", "--name", "b", "--", "sh", "-c", "exit 3", "{}", "{#}", items=["a b"], code=9)
        (task,) = hv.tasks("b")
        shown = hv.ok("show", task["id"])
        line = next(line for line in shown.splitlines() if line.startswith("  command "))
        words = ["sh", "-c", "exit 3", "a b", "1"]
        assert shlex.split(line.partition("command")[2]) == words
        assert "  exit code   3\n" in shown
        told = hv.json("show", task["id"])
        assert (told["command"], told["exit_code"]) == (words, 3)

    def test_a_later_stage_has_the_result_of_the_one_before(self, hv):
        run(hv, "-q", "--name", "b", "--then", "echo {result}", *JSON, items="a")
        (batch,) = [line for line in hv.ok("batches", "--names").splitlines() if "then" in line]
        (task,) = hv.tasks(batch)
        assert hv.json("show", task["id"])["command"] == ["echo", '{"name":"a"}']

    def test_a_task_that_is_not_run_has_neither(self, hv):
        told = hv.json("show", hv.add())
        assert (told["command"], told["exit_code"]) == ([], None)
