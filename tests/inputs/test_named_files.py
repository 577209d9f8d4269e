"""The items as the command line names them: two passes over any input, and its bad rows."""

import io
import os
import sys
import threading

import pytest

from hypervisor.cli.run.request import ItemOptions
from hypervisor.cli.run.sources import Source
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.items import MailItem, TaskItem
from hypervisor.inputs.template import Item

MAIL = b"From a Mon Jan  5 10:00:00 2026\nSubject: %d\nMessage-ID: <%d@x>\n\nbody\n\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def source(*items, **given):
    return Source(ItemOptions(**{"items": items, **given}))


def twice(*items, **given):
    """The result of two passes, which must be the same, and the problems they report."""
    found = source(*items, **given)
    first, told = list(found), (found.bad, found.first_bad)
    assert list(found) == first
    assert (found.bad, found.first_bad) == told
    assert [item.number for item in first] == list(range(1, len(first) + 1))
    found.close()
    return [item.text for item in first], found.first_bad


def put(name, text=b"---\nid: 1\n---\n"):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def stdin(monkeypatch, data):
    """A pipe, which cannot be read twice."""
    read, write = os.pipe()

    def fill():
        with open(write, "wb") as end:
            end.write(data)

    threading.Thread(target=fill).start()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(open(read, "rb")))  # noqa: SIM115


def test_everything_at_once(here, monkeypatch):
    put("in.csv", "x,y\na,1\nb\nc,2\n")
    put("in.jsonl", '"d"\n{\n')
    put("in.mbox", MAIL % (1, 1))
    put("t/e.md")
    put("t/f.md", "---\n[\n---\n")
    put("g.txt")
    for part in ("cur", "new", "tmp"):
        os.makedirs(f"box/{part}")
    put("box/new/1", b"Message-ID: <h>\n")
    stdin(monkeypatch, b"i\n\xff\nx\0\n")
    found, bad = twice("in.csv", "in.jsonl", "in.mbox", "t", "g.*", "box", "-", item=["z"])
    assert found == ["z", "a", "c", "d", "<1@x>", "t/e.md", "g.txt", "<h>", "i", "\udcff"]
    assert [place for place, _ in bad] == [
        "in.csv, line 3",
        "in.jsonl, line 2",
        "t/f.md",
        "standard input, line 3",
    ]


def test_only_the_first_bad_rows_are_kept():
    put("in.jsonl", "{\n" * 50 + '"a"\n')
    found = source("in.jsonl")
    for _ in range(2):
        assert [item.text for item in found] == ["a"]
        assert found.bad == 50
        assert [place for place, _ in found.first_bad] == [
            f"in.jsonl, line {n}" for n in range(1, 21)
        ]


def test_kinds_survive_the_second_pass():
    put("t/a.md")
    put("in.mbox", MAIL % (1, 1))
    for name, kind in (("t", TaskItem), ("in.mbox", MailItem), ("t/*", Item)):
        found = source(name)
        for _ in range(2):
            (item,) = found
            assert type(item) is kind


def test_mails_from_a_pipe(monkeypatch):
    stdin(monkeypatch, MAIL % (1, 1) + MAIL % (2, 2))
    found = source("-", format="mbox")
    for _ in range(2):
        assert [item.columns["subject"] for item in found] == ["1", "2"]
    assert "mailbox" not in next(iter(found)).columns


def test_many_mailboxes_by_a_pattern():
    put("m/a.mbox", MAIL % (1, 1))
    put("m/b.mbox", b"no mbox")
    put("m/c.mbox", MAIL % (3, 3))
    found, bad = twice("m/*.mbox", format="mbox")
    assert found == ["<1@x>", "<3@x>"] and bad[0][0] == "m/b.mbox"
    assert twice("m/*.mbox")[0] == ["m/a.mbox", "m/b.mbox", "m/c.mbox"]


def test_task_files_one_by_one_by_pattern_and_from_a_pipe(monkeypatch):
    put("t/a.md")
    put("t/b c.md")
    put("t/new\nline.md")
    names = ["t/a.md", "t/b c.md", "t/new\nline.md"]
    assert twice("t/a.md", format="tasks") == (["t/a.md"], [])
    assert twice("t/*.md", format="tasks") == (names, [])
    stdin(monkeypatch, "\0".join([*names, "gone.md"]).encode())
    found, bad = twice("-", format="tasks", null=True)
    assert found == names and bad[0][0] == "gone.md"


def test_what_changes_between_two_passes():
    for name in ("t/a.md", "t/b.md", "g1", "in.txt"):
        put(name)
    put("in.mbox", MAIL % (1, 1) + MAIL % (2, 2))
    put("in.txt", "x\ny\n")
    found = source("t", "g*", "in.mbox", "in.txt")
    first = list(found)
    assert [item.text for item in first] == [
        "t/a.md",
        "t/b.md",
        "g1",
        "<1@x>",
        "<2@x>",
        "x",
        "y",
    ]
    for name in ("t/a.md", "g1", "in.mbox", "in.txt"):
        os.unlink(name)
    put("t/b.md", "---\n[\n---\n")
    put("t/c.md")
    put("g2")
    assert list(found) == first and found.bad == 0


def test_a_pass_that_is_broken_off():
    put("t/a.md", "---\n[\n---\n")
    put("t/b.md")
    put("t/c.md")
    found = source("t")
    for item in found:
        assert item.text == "t/b.md"
        break
    assert [item.text for item in found] == ["t/b.md", "t/c.md"] and found.bad == 1
    for _ in found:
        break
    assert [item.text for item in found] == ["t/b.md", "t/c.md"] and found.bad == 1


def task(name, own, parent):
    put(
        name,
        "---\n"
        + (f"id: {own}\n" if own else "")
        + (f"parent: {parent}\n" if parent else "")
        + "---\n",
    )


def test_the_children_of_an_epic():
    task("t/1.md", "E", "X")
    task("t/2.md", "a", "E")
    task("u/3.md", "b", "a")
    task("t/4.md", None, "b")
    task("t/5.md", "c", "other")
    task("t/6.md", "d", "'[[E]]'")
    task("t/7.md", "e", None)
    task("t/8.md", "X", "b")  # a circle
    put("t/9.md", "---\n[\n---\n")
    found, bad = twice("t", "u", epic="E")
    assert found == ["t/2.md", "t/4.md", "t/6.md", "t/8.md", "u/3.md"]
    assert [place for place, _ in bad] == ["t/9.md"]
    assert twice("t/*.md", epic="other")[0] == ["t/5.md"]
    with pytest.raises(InvalidInput, match="no task in t has the parent 'none'"):
        list(source("t", epic="none"))


@pytest.mark.parametrize(
    "given",
    [
        {"items": ()},
        {"items": ["t"], "format": "csv"},
        {"items": ["t"], "item": ["x"]},
    ],
)
def test_an_epic_needs_task_files(given):
    put("t/a.md")
    with pytest.raises(InvalidInput, match="--epic selects Markdown tasks"):
        source(**{"epic": "E", **given})


@pytest.mark.parametrize(
    "name, given, said",
    [
        ("none", {}, "none cannot be read: No such file"),
        ("none.md", {"format": "tasks"}, "none.md cannot be read"),
        ("t", {"format": "csv"}, "t is a folder; --format csv needs a file"),
        ("t", {"format": "mbox"}, "t is a folder"),
        ("t", {"null": True}, "t is a folder; --null needs a file"),
        ("t", {"format": "maildir"}, "t is not a Maildir"),
        ("t/a.md", {"format": "maildir"}, "t/a.md is not a Maildir"),
        ("t/*", {"format": "maildir"}, "is a pattern"),
    ],
)
def test_what_cannot_be_a_source(name, given, said):
    put("t/a.md")
    with pytest.raises(InvalidInput, match=said):
        source(name, **given)


@pytest.mark.parametrize(
    "name, data, said",
    [
        ("in.csv", "a,a\n", "in.csv, line 1: two columns .* Nothing was started"),
        ("in.csv", b"\xff\n", "in.csv, line 1: not valid UTF-8"),
        ("in.mbox", b"Subject: x\n", "in.mbox is not an mbox"),
    ],
)
def test_what_is_beyond_repair(name, data, said):
    put(name, data)
    with pytest.raises(InvalidInput, match=said):
        list(source(name))
