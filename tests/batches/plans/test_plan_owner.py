"""Files that their owner changes, moves or removes at the same time are never overwritten."""

from __future__ import annotations

import os

import pytest

from hypervisor.core import atomic_replace
from hypervisor.core.renameat2 import renameat2
from tests.batches.plans.proposed import (
    BATCH,
    TEXT,
    Interrupted,
    apply,
    create,
    delete,
    edit,
    move,
    receipts,
    states,
    write,
)
from tests.support.proposing import tree


class TestOwner:
    """Whatever the owner of a file does at the same time is not lost."""

    @pytest.fixture
    def approved(self, hv, given, folder):
        """An approved plan that was interrupted before its first action."""

        def interrupted(outcome):
            raise Interrupted

        def giver(*lists, at=None):
            given(*lists)
            with pytest.raises(Interrupted):
                apply(hv, tell=interrupted)

        return giver

    def test_changes_a_file_after_the_approval(self, hv, approved, folder):
        approved(
            [create("first")],
            [write("in/a.md", "mine")],
            [delete("in/b.md")],
            [move("in/c.md", "x/c.md")],
            [create("x/new")],
        )
        for name in ("in/a.md", "in/b.md", "in/c.md"):
            (folder / name).write_text("the owner's")
        before = tree(folder)
        done = hv.apply(BATCH)
        assert [each.problem for each in done.failed] == [
            f"in/{name}.md has changed since" for name in "abc"
        ]
        (folder / "x" / "new").unlink()
        (folder / "x").rmdir()
        assert tree(folder) == before
        said = [text for text in receipts(hv) if text.startswith("not applied")]
        assert said[0].startswith("not applied #2: write in/a.md: in/a.md has changed since, ")

    def test_does_it_himself_after_the_approval(self, hv, approved, folder):
        approved(
            [create("first")],
            [move("in/a.md", "x.md")],
            [delete("in/b.md")],
            [write("in/c.md", "new")],
        )
        (folder / "in/a.md").rename(folder / "x.md")
        (folder / "in/b.md").unlink()
        (folder / "in/c.md").write_text("new")
        before = tree(folder)
        problems = [each.problem for each in hv.apply(BATCH).failed]
        assert problems == ["it was already done"] * 3
        hv.undo(BATCH)
        del before["first"]
        assert tree(folder) == before, "what he did is not ours to undo"

    def test_what_failed_can_be_planned_again(self, hv, approved, folder):
        approved([create("first")], [edit("in/a.md", status="done")])
        (folder / "in/a.md").write_text(TEXT + "more\n")
        assert len(hv.apply(BATCH).failed) == 1
        assert apply(hv).applied == 1
        assert (folder / "in/a.md").read_text() == TEXT.replace("open", "done") + "more\n"

    @pytest.mark.parametrize("exchange", [True, False], ids=["renameat2", "without"])
    @pytest.mark.parametrize(
        "proposal",
        [write("in/a.md", "x"), delete("in/a.md"), move("in/a.md", "x")],
        ids=lambda each: each["do"],
    )
    def test_changes_it_in_the_very_last_moment(
        self, hv, given, folder, monkeypatch, proposal, exchange
    ):
        given([proposal])
        real = renameat2
        changes = iter([folder / "in/a.md"])

        def late(*args):
            for path in changes:
                path.write_text("the owner's")
            return real(*args) if exchange else False

        monkeypatch.setattr(atomic_replace, "renameat2", late)
        (failed,) = apply(hv).failed
        assert "has changed since" in failed.problem
        assert (folder / "in/a.md").read_text() == "the owner's"
        assert sorted(os.listdir(folder / "in")) == ["a.md", "b.md", "c.md"]
        assert sorted(os.listdir(folder)) == [".hypervisor", "in"]

    @pytest.mark.parametrize(
        "proposal", [move("in/a.md", "x"), create("x")], ids=lambda each: each["do"]
    )
    def test_puts_a_file_in_the_way_in_the_very_last_moment(
        self, hv, given, folder, monkeypatch, proposal
    ):
        given([proposal])
        real = renameat2
        monkeypatch.setattr(
            atomic_replace,
            "renameat2",
            lambda *args: (folder / "x").write_text("the owner's") and real(*args),
        )
        (failed,) = apply(hv).failed
        assert failed.problem == "x already exists"
        assert (folder / "x").read_text() == "the owner's"
        assert (folder / "in/a.md").read_text() == TEXT

    def test_is_still_writing(self, hv, given, folder, monkeypatch):
        given([write("in/a.md", "x")])
        monkeypatch.setattr(atomic_replace, "PATIENCE", 0.05)
        with open(folder / "in/a.md", "a") as owner:
            (failed,) = apply(hv).failed
            owner.write("the owner's")
        assert "being written" in failed.problem
        assert (folder / "in/a.md").read_text() == TEXT + "the owner's"
        assert sorted(os.listdir(folder / "in")) == ["a.md", "b.md", "c.md"]

    def test_puts_a_link_in_the_way(self, hv, approved, folder):
        approved([create("first")], [create("in/new")], [delete("in/a.md")])
        (folder / "in").rename(folder / "elsewhere")
        (folder / "in").symlink_to(folder / "elsewhere")
        done = hv.apply(BATCH)
        assert len(done.failed) == 2
        assert sorted(os.listdir(folder / "elsewhere")) == ["a.md", "b.md", "c.md"]

    def test_changes_a_file_before_it_is_undone(self, hv, given, folder):
        given(
            [edit("in/a.md", status="done")],
            [edit("in/b.md", status="done")],
            [move("in/c.md", "x/c.md")],
            [create("x/new")],
        )
        apply(hv)
        (folder / "in/a.md").write_text("the owner's")
        (folder / "x/c.md").write_text("the owner's")
        rehearsed = hv.undo(BATCH, dry_run=True)
        done = hv.undo(BATCH)
        assert [each.problem for each in done.refused] == [
            "x/c.md has changed since",
            "in/a.md has changed since",
        ]
        assert [each.number for each in done.undone] == [4, 2]
        assert [each.number for each in rehearsed.refused] == [3, 1]
        assert (folder / "in/a.md").read_text() == "the owner's"
        assert (folder / "in/b.md").read_text() == TEXT
        assert states(hv) == ["applied", "undone", "applied", "undone"]
        (folder / "x/c.md").write_text(TEXT)
        assert [each.number for each in hv.undo(BATCH).undone] == [3]
        assert not (folder / "x").exists(), "made by the first plan, empty now"

    def test_keeps_folders_that_hold_something_of_his(self, hv, given, folder):
        given([move("in/a.md", "x/y/a.md")])
        apply(hv)
        (folder / "x" / "his").write_text("")
        hv.undo(BATCH)
        assert sorted(tree(folder)) == ["in", "in/a.md", "in/b.md", "in/c.md", "x", "x/his"]
