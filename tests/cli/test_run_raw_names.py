"""Names of files that are not UTF-8, from the input of a run to its command and its reports."""

import json
import os
from pathlib import Path

import pytest

NAME = b"caf\xe9.txt"
SHOWN = r"caf\xe9.txt"


@pytest.fixture
def hv(project):
    Path(os.fsdecode(os.fsencode(project.folder) + b"/" + NAME)).write_bytes(b"content\n")
    return project


@pytest.mark.parametrize(
    "options, stdin",
    [
        (["--items", "*.txt"], b""),
        (["-0"], NAME + b"\0"),
        ([], NAME + b"\n"),
        (["--item", NAME], b""),
        (["--shell", "--items", "*.txt"], b""),
    ],
    ids=["glob", "nul", "lines", "item", "shell"],
)
def test_the_command_gets_the_bytes(hv, options, stdin):
    command = ["cat", "{}"] if "--shell" not in options else ["cat {}"]
    done = hv("run", "--name", "b", *options, "--", *command, stdin=stdin)
    assert done.code == 0, done
    (task,) = hv.tasks("b")
    assert task["title"] == SHOWN and hv.ok("logs", task["id"]) == "content\n"
    again = hv("run", "--name", "b", *options, "--", *command, stdin=stdin)
    assert again.code == 0 and "1 already done, skipped" in again.out, again


def test_the_command_can_read_the_name(hv):
    done = hv("run", "--name", "b", "--items", "*.txt", "--stdin", "item", "--", "od", "-An", "-c")
    assert done.code == 0, done
    assert "f 351" in hv.ok("logs", hv.tasks("b")[0]["id"])


def test_a_function_gets_a_name_that_it_can_open(hv):
    (hv.folder / "fun.py").write_text("def read(path):\n    return open(path).read()\n")
    assert hv("run", "--name", "b", "--items", "*.txt", "--fn", "fun:read").code == 0
    assert hv.tasks("b")[0]["result"] == "content\n"


def test_it_is_valid_text_wherever_it_is_shown(hv):
    hv("run", "--name", "b", "--exclusive", "{}", "--items", "*.txt", "--", "false")
    (task,) = hv.tasks("b")
    data = hv.json("show", task["id"])["detail"]["task"]["data"]
    assert data["item"] == SHOWN and data["item_bytes"] == "Y2Fm6S50eHQ="
    for command in (("ls",), ("status", "b"), ("summary", "b"), ("events",), ("show", task["id"])):
        for form in ([], ["--json"]):
            hv(*command, *form).out.encode()
    dry = hv.ok("run", "--dry-run", "--json", "--items", "*.txt", "--", "cat")
    assert json.loads(dry)["commands"] == [["cat", SHOWN]]
    assert r"caf\\xe9" not in hv.ok("ls") and SHOWN in hv.ok("ls")
    page = Path(hv.json("report", "b")["path"])
    assert SHOWN in page.read_text(encoding="utf-8")


def test_task_files_with_such_a_name_are_written_back(hv):
    folder = hv.folder / "tasks"
    folder.mkdir()
    path = Path(os.fsdecode(os.fsencode(folder) + b"/t\xe9.md"))
    path.write_text("---\ntitle: x\nstatus: todo\n---\n")
    assert hv("run", "--name", "b", "--items", "tasks", "--", "test", "-e").code == 0
    assert "status: done" in path.read_text()


def test_a_chunk_lists_it(hv):
    done = hv("run", "--name", "b", "--per", "chunk", "--items", "*.txt", "--", "cat", "{}")
    assert done.code == 0, done
    line = json.loads(hv.ok("logs", hv.tasks("b")[0]["id"]))
    assert line["item"] == SHOWN and line["item_bytes"] == "Y2Fm6S50eHQ="
