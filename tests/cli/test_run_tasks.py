"""`hv run` over a folder of task files: skipping, exclusion, order and display."""

from __future__ import annotations

import pytest

WORK = 'echo "begin $1" >> log; sleep 0.15; echo "end $1" >> log'


@pytest.fixture
def hv(project):
    files = {
        "a": ("id: A\nstatus: todo", "Change `src/x.py`."),
        "b": ("id: B\nstatus: todo", "Rename in `src/x.py` and `none.py`."),
        "c": ("id: C\nfiles: [src/x.py]\ndepends_on: [A]", "Then this."),
        "d": ("id: D\nstatus: done", "Long ago."),
        "e": ("id: E\nstatus: in_progress\nassignee: ann", "She is at it."),
    }
    (project.folder / "src").mkdir()
    (project.folder / "src" / "x.py").touch()
    (project.folder / "tasks").mkdir()
    for name, (head, body) in files.items():
        (project.folder / "tasks" / f"{name}.md").write_text(f"---\n{head}\n---\n{body}\n")
    return project


def text(hv, name):
    return (hv.folder / "tasks" / f"{name}.md").read_text()


def test_task_files_are_worked_on_in_sequence_where_they_must_be(hv):
    done = hv(
        "run",
        "--items",
        "tasks",
        "--workers",
        "3",
        "--name",
        "b",
        "--",
        "sh",
        "-c",
        WORK,
        "sh",
        "{id}",
    )
    assert done.code == 0, done
    assert "3 to do, 1 skipped (already done)" in done.out
    lines = (hv.folder / "log").read_text().split("\n")[:-1]
    assert len(lines) == 6 and set(lines) == {f"{w} {n}" for w in ("begin", "end") for n in "ABC"}
    for begin, end in zip(lines[::2], lines[1::2], strict=True):  # never two at once
        assert begin.removeprefix("begin ") == end.removeprefix("end "), lines
    assert lines.index("end A") < lines.index("begin C")
    for name in "abc":
        assert "status: done" in text(hv, name)
    assert "ann" in text(hv, "e") and "in_progress" in text(hv, "e")
    again = hv(
        "run",
        "--items",
        "tasks",
        "--workers",
        "3",
        "--name",
        "b",
        "--",
        "sh",
        "-c",
        WORK,
        "sh",
        "{id}",
    )
    assert again.code == 0 and len((hv.folder / "log").read_text().split("\n")) == 7, again
