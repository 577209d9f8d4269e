"""Files that triage cannot read or write, and an owner who edits them at the same time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hypervisor.core.errors import InvalidInput
from hypervisor.skills.builtin import triage
from tests.skills.triage_tasks import fields, folder, task

__all__ = ["folder"]


class TestUnreadable:
    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "empty"),
            (b" \n\n", "empty"),
            (b"---\ntitle: [a\n---\n", ""),
            (b"---\ntitle: a: b\n---\n", "line"),
            (b"---\n- a\n- b\n---\n", ""),
            (b"---\ntitle: never closed\n", "closed"),
            (b"---\ntitle: \xff\n---\n", ""),
            (b"---\ntitle: a\n---\n\0\1", "NUL"),
            (b"\x89PNG\r\n\x1a\n\0\0", ""),
            (b"---\ntitle: a\n---\n" + b"x" * 5_000_000, "bytes"),
            (b"---\nx: " + b"[" * 50_000 + b"\n---\n", ""),
        ],
    )
    def test_file_is_untouched(self, content, reason):
        Path("task.md").write_bytes(content)
        before = os.stat("task.md")
        answer = triage.run("task.md")
        assert answer["category"] == "unreadable"
        assert reason in answer["rationale"]
        assert answer["changed"] == {} and answer["receipts"] == []
        assert Path("task.md").read_bytes() == content
        assert os.stat("task.md").st_mtime_ns == before.st_mtime_ns

    def test_markdown_without_front_matter_is_simply_not_a_task(self):
        Path("notes.md").write_text("# Notes\n\nbuy milk\n")
        answer = triage.run("notes.md")
        assert answer["category"] == "not a task"
        assert answer["rationale"] == "it has no front matter; the file was not changed"
        assert answer["changed"] == {} and answer["receipts"] == []
        assert Path("notes.md").read_text() == "# Notes\n\nbuy milk\n"

    def test_vanished(self):
        assert triage.run("gone.md")["category"] == "unreadable"

    def test_vanished_between_look_and_change(self, monkeypatch):
        task("", "rename, regenerate")
        decide = triage._decide_on

        def decide_then_remove(*args):
            decision = decide(*args)
            os.unlink("task.md")
            return decision

        monkeypatch.setattr(triage, "_decide_on", decide_then_remove)
        assert triage.run("task.md")["category"] == "unreadable"
        assert not Path("task.md").exists()

    def test_folder_and_pipe(self):
        os.mkdir("dir.md")
        os.mkfifo("pipe.md")
        assert triage.run("dir.md")["category"] == "unreadable"
        assert triage.run("pipe.md")["category"] == "unreadable"

    def test_names_that_no_file_can_have(self):
        assert triage.run("x" * 5000)["category"] == "unreadable"
        assert triage.run("\ud800.md")["category"] == "unreadable"

    @pytest.mark.parametrize("item", [None, 3, "", {}, {"path": None}, {"path": 3}, ["a"], "a\0b"])
    def test_what_is_not_a_path_is_an_error(self, item):
        with pytest.raises(InvalidInput):
            triage.run(item)

    def test_a_change_that_front_matter_cannot_take(self, monkeypatch):
        content = b"---\nstatus: &s closed\nalias: *s\n---\n"
        Path("task.md").write_bytes(content)
        assert triage.run("task.md")["category"] == "unreadable"
        monkeypatch.setenv("HV_PROPOSE", "1")
        assert triage.run("task.md")["category"] == "unreadable"
        assert Path("task.md").read_bytes() == content


def test_locks_are_where_the_worker_says(folder, monkeypatch):
    monkeypatch.setenv("HV_LOCKS", str(folder / "there"))
    triage.run(task())
    assert os.listdir("there") and not os.path.exists(".hypervisor/locks")
    monkeypatch.delenv("HV_LOCKS")
    triage.run(task())
    assert os.listdir(".hypervisor/locks")


def test_a_file_that_cannot_be_written_is_an_error(monkeypatch):
    def refuse(*_):
        raise InvalidInput("task.md: Permission denied")

    monkeypatch.setattr("hypervisor.inputs.task_files.files.TaskFiles.change", refuse)
    with pytest.raises(InvalidInput, match="Permission"):
        triage.run(task())


def test_a_mistake_in_the_rules_is_an_error_not_an_answer(folder):
    before = Path(task("", "rename, regenerate")).read_bytes()
    (folder / "triage.toml").write_text("[names]\nperson = 3\n")
    with pytest.raises(InvalidInput, match=r"\[names\] person"):
        triage.run("task.md")
    assert Path("task.md").read_bytes() == before


def test_an_edit_of_the_owner_in_the_meantime_is_kept(monkeypatch):
    task("", "rename, regenerate\n")
    decide = triage._decide_on

    def owner_is_quicker(data, *args):
        monkeypatch.setattr(triage, "_decide_on", decide)
        decision = decide(data, *args)
        task("assignee: ann\ncomplexity: theirs\n", "rename, regenerate, done by hand\n")
        return decision

    monkeypatch.setattr(triage, "_decide_on", owner_is_quicker)
    answer = triage.run("task.md")
    assert (answer["category"], answer["changed"]) == ("assigned", {})
    assert fields() == {"title": "A thing", "assignee": "ann", "complexity": "theirs"}
