"""Undoing a plan, and what happens when a step of it fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import hypervisor
from hypervisor.batches.plans.files import ActionFiles
from hypervisor.batches.plans.plan import current_paths
from hypervisor.core.errors import NotFound, WrongState
from hypervisor.queue.sql import queries
from tests.batches.plans.proposed import (
    BATCH,
    Interrupted,
    apply,
    create,
    delete,
    edit,
    move,
    states,
    write,
)
from tests.support.proposing import tree


def test_undo_and_apply_again(hv, given, folder):
    given(
        [move("in/a.md", "x/a.md"), {"do": "task", "title": "t", "key": "k"}],
        [{"do": "task", "title": "u"}],
    )
    before = tree(folder)
    for _ in range(3):
        assert apply(hv).applied == 3
        assert (folder / "x" / "a.md").exists()
        assert {t.title for t in hv.list_tasks(states=["active"])} == {"t", "u"}
        assert len(hv.undo(BATCH).undone) == 3
        assert tree(folder) == before
        assert hv.list_tasks(states=["active"]) == ()
    assert states(hv) == ["undone"] * 9


def test_undo_withdraws_what_was_approved_but_not_done(hv, given, folder):
    given([delete("in/a.md")], [delete("in/b.md")])
    before = tree(folder)

    def interrupted(outcome):
        raise Interrupted

    with pytest.raises(Interrupted):
        apply(hv, tell=interrupted)
    done = hv.undo(BATCH)
    assert (len(done.undone), done.dropped) == (1, 1)
    assert (states(hv), tree(folder)) == (["undone", "dropped"], before)


def test_a_failure_stops_the_rest_only_if_asked_to(hv, given, folder, monkeypatch):
    given([delete("in/a.md")], [delete("in/b.md")], [delete("in/c.md")])
    monkeypatch.setattr(
        ActionFiles, "keep", lambda self, path, hash: (_ for _ in ()).throw(OSError(28, "full"))
    )
    done = apply(hv, fail_fast=True)
    assert (done.applied, len(done.failed), done.left) == (0, 1, 2)
    assert states(hv) == ["failed", "planned", "planned"]
    monkeypatch.undo()
    done = hv.apply(BATCH)
    assert (done.resumed, done.applied) == (2, 2)


def test_a_step_that_was_made_counts_even_if_its_end_failed(hv, given, folder, monkeypatch):
    given([write("in/a.md", "new")])
    real = os.unlink

    def failing(path, *args, **more):
        if str(path).endswith(".tmp") and (folder / "in/a.md").read_text() == "new":
            monkeypatch.setattr(os, "unlink", real)
            raise OSError(5, "Input/output error")
        return real(path, *args, **more)

    monkeypatch.setattr(os, "unlink", failing)
    assert apply(hv).failed == ()
    assert sorted(os.listdir(folder / "in")) == ["a.md", "b.md", "c.md"]


def test_the_whereabouts_of_moved_and_deleted_files(hv, given, folder):
    given(
        [move("in/a.md", "x.md"), move("x.md", "y.md")],
        [delete("in/b.md")],
        [edit("in/c.md", status="done")],
        [create("new"), move("new", "newer")],
    )
    batch = hv.store.read(queries.batch, BATCH)
    assert current_paths(hv, batch) == {}
    apply(hv)
    here = str(folder)
    assert current_paths(hv, batch) == {
        f"{here}/in/a.md": f"{here}/y.md",
        f"{here}/in/b.md": None,
        f"{here}/new": f"{here}/newer",
    }
    hv.undo(BATCH)
    assert current_paths(hv, batch) == {}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_the_owner_of_a_file_stays_its_owner(hv, given, folder):
    given([write("in/a.md", "new")], [delete("in/b.md")])
    for name in "ab":
        os.chown(folder / "in" / f"{name}.md", 12, 34)
    apply(hv)
    assert os.stat(folder / "in/a.md").st_uid == 12
    hv.undo(BATCH)
    for name in "ab":
        found = os.stat(folder / "in" / f"{name}.md")
        assert (found.st_uid, found.st_gid) == (12, 34)


def test_one_process_at_a_time(hv, given, folder):
    given([delete("in/a.md")])
    own = hv.batch_files.folder(BATCH)
    with ActionFiles(str(folder), own).lock("hv apply of bob"):
        with pytest.raises(WrongState, match=rf"hv apply of bob \(process {os.getpid()}\)"):
            apply(hv)
        with pytest.raises(WrongState, match="is working on this plan"):
            hv.undo(BATCH)
    assert states(hv) == []
    assert apply(hv).applied == 1


def test_a_folder_that_is_not_here(hv, given, folder):
    given([delete("in/a.md")])
    apply(hv)
    folder.rename(folder.with_name("gone"))
    (folder.with_name("gone") / ".hypervisor").rename(folder.with_name("kept"))
    with hypervisor.open(folder.with_name("kept"), relaxed=True) as other:
        with pytest.raises(NotFound, match="no such folder"):
            other.undo(BATCH)
        assert states(other) == ["applied"]


def test_a_kept_original_that_was_tampered_with_is_not_put_back(hv, given, folder):
    given([write("in/a.md", "new")])
    apply(hv)
    (kept,) = Path(hv.batch_files.folder(BATCH), "kept").iterdir()
    kept.write_text("evil")
    (refused,) = hv.undo(BATCH).refused
    assert "was changed" in refused.problem
    assert (folder / "in/a.md").read_text() == "new"
