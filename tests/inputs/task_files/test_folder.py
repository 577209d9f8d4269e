"""Folders of Markdown tasks: every file is an item, unreadable ones are reported."""

import inspect
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.items import task_for
from hypervisor.inputs.task_files.folder import below, parent_of, read_task, task_items, task_paths
from hypervisor.queue.task import NewTask

FULL = """---
id: T-7  # as the tracker calls it
title: Write
  the manual
type: docs
status: active
priority: 2
project: [[Manual]]
depends_on: T-1, T-2
parent: "[[E-1|The epic]]"
assignee:
complexity: low
tags: [a, b]
created: 2026-11-16
files:
  - docs/a  b.md
  - "x,y.md"
other: ignored
---
# Heading
---
id: not this one
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(path, text="---\nid: 1\n---\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def never(place, why):
    raise AssertionError(f"{place}: {why}")


def read(folder, bad=never):
    return list(task_items(task_paths(folder, bad), bad))


def test_a_task_has_its_columns(folder):
    put(folder / "t.md", FULL)
    (item,) = read(".")
    assert item.text == "t.md" and item.number == 1
    assert item.columns == {
        "path": "t.md",
        "id": "T-7",
        "title": "Write the manual",
        "type": "docs",
        "status": "active",
        "priority": "2",
        "project": "Manual",
        "depends_on": ["T-1", "T-2"],
        "parent": "[[E-1|The epic]]",
        "complexity": "low",
        "tags": ["a", "b"],
        "date": "2026-11-16",
        "files": ["docs/a  b.md", "x,y.md"],
    }
    assert parent_of(item.columns) == "E-1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no front matter\n",
        "---\n---\n",
        b"\xef\xbb\xbf# Title\n",
        "---\n# nothing\n---\n",
        "x" * 500_000,
    ],
)
def test_files_that_say_nothing_are_tasks_too(folder, text):
    put(folder / "t.md", text)
    (item,) = read(".")
    assert item.columns == {"path": "t.md"}


def test_a_long_body_is_not_read(folder):
    put(folder / "t.md", b"---\r\nid: 1\r\n---\r\n" + b"\xff" * 10_000_000)
    assert read_task("t.md").columns == {"path": "t.md", "id": "1"}


@pytest.mark.parametrize(
    "text, why",
    [
        ("---\nid: [\n---\n", "YAML"),
        ("---\nid: 1\n", "not closed"),
        (b"\xff", "UTF-8"),
        ("---\n- a\n---\n", "line 2"),
        ("---\nid: 1\nid: 2\n---\n", "duplicate key"),
        ("---\nid: 1\n" + "# x\n" * 200_000, "closed"),
        ("---\nid: 1\n" + "# x\n" * 100_000 + "---\n", ""),
        (
            "---\na: &a [x]\nb: &b [*a, *a, *a]\n"
            + "".join(
                f"c{n}: &c{n} [*{p}, *{p}, *{p}, *{p}]\n"
                for n, p in enumerate(["b"] + [f"c{n}" for n in range(20)])
            )
            + "tags: *c20\n---\n",
            "",
        ),
        ("---\ntags: &a [*a]\n---\n", ""),
    ],
)
def test_one_broken_file_does_not_stop_the_rest(folder, text, why):
    put(folder / "a.md", text)
    put(folder / "b.md")
    bad = []
    (item,) = read(".", lambda *each: bad.append(each))
    assert (item.text, item.number) == ("b.md", 1)
    ((place, said),) = bad
    assert place == "a.md" and why in said
    assert (folder / "a.md").read_bytes() == (text if isinstance(text, bytes) else text.encode())


def test_which_files_and_in_which_order(folder):
    names = [
        "a.md",
        "a b.md",
        "a/c.md",
        "a/b/d.md",
        "a-b/x.md",
        "ü.md",
        "new\nline.md",
        "z.md/in.md",
    ]
    for name in [*names, ".hidden.md", ".git/x.md", "a/.obsidian/y.md", "b.txt", "c.MD", "md"]:
        put(folder / "in" / name)
    os.symlink("..", folder / "in/a/up")  # a loop, if one followed it
    os.symlink("a", folder / "in/linked.md")  # a folder, not a task
    for name in ("in", "in/"):
        assert list(task_paths(name, never)) == sorted(f"in/{name}" for name in names)
    assert next(task_paths(f"{folder}/in", never)) == f"{folder}/in/a b.md"
    assert list(task_paths(".", never)) == list(task_paths("./", never))
    assert list(task_paths(".", never)) == sorted(f"in/{name}" for name in names)


def test_what_cannot_be_read(folder):
    put(folder / "ok.md")
    os.symlink("nowhere", folder / "dangling.md")
    os.symlink("loop.md", folder / "loop.md")
    os.mkfifo(folder / "pipe.md")
    put(folder / "x.md/inside.md")
    with open(os.fsencode(folder) + b"/z\xff.md", "wb"):
        pass
    bad = []
    found = read(".", lambda *each: bad.append(each))
    assert [item.text for item in found] == ["ok.md", "x.md/inside.md", "z\udcff.md"]
    assert [item.number for item in found] == [1, 2, 3]
    assert [place for place, _ in bad] == ["dangling.md", "loop.md", "pipe.md"]
    with pytest.raises(InvalidInput, match="none cannot be read: No such file"):
        read("none")
    with pytest.raises(InvalidInput, match="Not a directory"):
        read("ok.md")


def test_files_that_vanish_while_they_are_read(folder):
    for name in ("a.md", "b/c.md", "d.md"):
        put(folder / name)
    bad = []
    paths = task_paths(".", lambda *each: bad.append(each))
    items = task_items(paths, lambda *each: bad.append(each))
    assert next(items).text == "a.md"
    (folder / "b/c.md").unlink()
    (folder / "b").rmdir()
    (folder / "d.md").unlink()
    assert list(items) == []
    assert [place for place, _ in bad] == ["b/", "d.md"]


def test_folders_nested_deeper_than_calls(folder):
    depth = 200  # and fewer calls than that, for a tree that others can still remove
    put(folder / ("d/" * depth) / "x.md")
    calls, before = len(inspect.stack(0)), sys.getrecursionlimit()
    sys.setrecursionlimit(calls + depth // 2)
    try:
        found = list(task_paths(".", never))
    finally:
        sys.setrecursionlimit(before)
    assert found == ["d/" * depth + "x.md"]


def test_a_task_stays_the_same_when_its_file_changes(folder):
    put(folder / "t.md", FULL)
    first = task_for(read_task("t.md"), NewTask(""))
    put(folder / "t.md", FULL.replace("active", "done"))
    second = task_for(read_task("t.md"), NewTask(""))
    assert first.key == second.key == "t.md"
    assert second.data["columns"]["status"] == "done"


TASKS = st.lists(
    st.fixed_dictionaries(
        {}, optional={"id": st.sampled_from("abcde"), "parent": st.sampled_from("abcdex")}
    )
)


@given(TASKS)
def test_the_tasks_below_an_epic(tasks):
    found = below("a", tasks)
    assert "a" in found
    for task in tasks:
        if task.get("parent") in found and "id" in task:
            assert task["id"] in found
    for name in found - {"a"}:
        assert any(task.get("id") == name and task.get("parent") in found for task in tasks)


def test_epics_of_any_depth():
    chain = [{"id": str(n), "parent": str(n - 1)} for n in range(1, 50_000)]
    assert len(below("0", reversed(chain))) == 50_000
    assert below("none", chain) == {"none"}
