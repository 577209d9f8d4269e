"""A scratch copy, and the changes made in it."""

from __future__ import annotations

import subprocess

import pytest

from hypervisor.core.errors import InvalidInput
from hypervisor.runs.scratch import Scratch


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("one\n")
    (folder / "sub" / "b.bin").write_bytes(b"\0\1\2")
    (folder / ".hypervisor").mkdir()
    (folder / ".git").mkdir()
    (folder / "link").symlink_to("a.txt")
    return folder


def test_changes_become_a_patch_that_can_be_applied(tmp_path, project):
    scratch = Scratch(str(tmp_path / "scratch"), str(project))
    scratch.make()
    copy = tmp_path / "scratch"
    assert sorted(each.name for each in copy.iterdir()) == ["a.txt", "link", "sub"]
    assert (copy / "link").is_symlink()
    assert scratch.patch() == b""
    (copy / "a.txt").write_text("one\ntwo\n")
    (copy / "sub" / "b.bin").write_bytes(b"\0\1\3")
    (copy / "new.txt").write_text("new\n")
    (project / "other.txt").write_text("by somebody else, meanwhile\n")
    kept = tmp_path / "kept.patch"
    assert scratch.keep(str(kept)) == kept.stat().st_size > 0
    assert b"other.txt" not in kept.read_bytes()
    (project / ".git").rmdir()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    subprocess.run(["git", "apply", str(kept)], cwd=project, check=True)
    assert (project / "a.txt").read_text() == "one\ntwo\n"
    assert (project / "new.txt").exists()


def test_a_copy_stays_for_a_session_that_continues(tmp_path, project):
    scratch = Scratch(str(tmp_path / "scratch"), str(project))
    scratch.make()
    (tmp_path / "scratch" / "half.txt").write_text("done so far\n")
    scratch.make(replace=False)
    assert b"half.txt" in scratch.patch()
    scratch.make()
    assert scratch.patch() == b""


def test_nothing_changed_leaves_no_file(tmp_path, project):
    scratch = Scratch(str(tmp_path / "scratch"), str(project))
    scratch.make()
    assert scratch.keep(str(tmp_path / "kept.patch")) == 0
    assert not (tmp_path / "kept.patch").exists()


def test_without_git_it_says_so(tmp_path, project, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InvalidInput, match="needs git"):
        Scratch(str(tmp_path / "scratch"), str(project)).make()
