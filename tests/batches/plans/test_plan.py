"""Plans: what is let through, what is refused, and that nobody's file is ever overwritten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import hypervisor
from hypervisor.batches.plans.action import PlanChanged
from hypervisor.batches.plans.files import ActionFiles
from hypervisor.batches.plans.plan import current_paths
from hypervisor.batches.sql import actions, chunks
from hypervisor.core import atomic_replace
from hypervisor.core.errors import NotFound, WrongState
from hypervisor.core.renameat2 import renameat2
from hypervisor.queue.sql import queries
from tests.support.intercept import intercept
from tests.support.proposing import propose, result, tree

BATCH = "tidy"
TEXT = "---\nstatus: open\n---\nhello\n"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "here"
    (made / "in").mkdir(parents=True)
    for name in "abc":
        (made / "in" / f"{name}.md").write_text(TEXT)
    (tmp_path / "secret").write_text("secret")
    return made


@pytest.fixture
def hv(folder):
    with hypervisor.open(folder / ".hypervisor", relaxed=True) as opened:
        opened.actor = "ann"
        yield opened


@pytest.fixture
def given(hv, folder):
    """Tasks that propose these actions, one task for each list of them."""

    def giver(*lists, **more):
        return propose(hv, BATCH, folder, [result(*each) for each in lists], **more)

    return giver


def move(path, to):
    return {"do": "move", "path": path, "to": to}


def edit(path, **fields):
    return {"do": "edit", "path": path, "set": fields}


def write(path, text):
    return {"do": "write", "path": path, "text": text}


def create(path, text="new"):
    return {"do": "create", "path": path, "text": text}


def delete(path):
    return {"do": "delete", "path": path}


def apply(hv, **more):
    return hv.apply(BATCH, hv.plan(BATCH).hash, **more)


def states(hv):
    return [
        row.state for row in hv.store.read(actions.every, hv.store.read(queries.batch, BATCH).id)
    ]


def receipts(hv):
    return [each.text for each in hv.receipts(BATCH)]


class TestRefused:
    """Nothing of this may ever be carried out."""

    def reasons(self, hv):
        found = hv.plan(BATCH)
        assert found.to_do == ()
        return [each.refused for each in found.refused]

    @pytest.mark.parametrize(
        "path",
        [
            "../secret",
            "in/../../secret",
            "/etc/passwd",
            "out/secret",
            "in/../out/secret",
            "out/../secret",
            "..",
            ".",
            "in/",
            "//etc/passwd",
            "in/" + "x/../" * 50 + "../../secret",
        ],
    )
    def test_what_lies_outside(self, hv, given, folder, path):
        (folder / "out").symlink_to(folder.parent)
        given([delete(path)], [move(path, "in/x")], [move("in/a.md", path)], [create(path)])
        before = tree(folder)
        assert len(self.reasons(hv)) == 4
        apply(hv)
        assert tree(folder) == before
        assert (folder.parent / "secret").read_text() == "secret"

    def test_a_file_that_is_a_link(self, hv, given, folder):
        (folder / "in" / "link").symlink_to(folder.parent / "secret")
        given([write("in/link", "x")], [delete("in/link")], [move("in/link", "x")])
        assert all("no plain file" in reason for reason in self.reasons(hv))

    @pytest.mark.parametrize(
        "path",
        [".hypervisor/store.db", ".git/hooks/post-commit", "in/.git/config", "in/.hv-x-1.tmp"],
    )
    def test_what_is_nobodys_business(self, hv, given, path):
        given([create(path)], [move("in/a.md", path)])
        assert all("is no file for a plan" in reason for reason in self.reasons(hv))

    def test_folders_and_what_is_not_there(self, hv, given, folder):
        os.mkfifo(folder / "in" / "pipe")
        given(
            [delete("in")],
            [delete("nowhere")],
            [delete("in/a.md/b")],
            [delete("in/pipe")],
            [move("in/a.md", "in/b.md")],
            [create("in/a.md")],
            [move("in/a.md", "in")],
        )
        assert self.reasons(hv) == [
            "'in' is no plain file",
            "nowhere: there is no such file",
            "'a.md' is no folder",
            "'in/pipe' is no plain file",
            "in/b.md: it is there already",
            "in/a.md: it is there already",
            "'in' is no plain file",
        ]

    def test_nonsense_does_not_stop_the_rest(self, hv, folder):
        bad = [None, 7, {"do": "chmod"}, {"do": "move"}, edit("in/a.md"), {"do": "task"}]
        propose(
            hv,
            BATCH,
            folder,
            [
                {"actions": bad},
                {"actions": "x"},
                {"actions": {}},
                {"actions": [delete("in/c.md")]},
                ["actions"],
            ],
        )
        found = hv.plan(BATCH)
        assert len(found.refused) == 8
        assert [each.what for each in found.to_do] == ["delete in/c.md"]

    def test_front_matter_that_cannot_be_read(self, hv, given, folder):
        (folder / "in" / "a.md").write_text("---\nstatus: [\n---\n")
        given([edit("in/a.md", status="done")])
        assert len(self.reasons(hv)) == 1

    def test_files_where_nothing_was_started(self, hv):
        hv.add([hypervisor.NewTask("x")], batch=BATCH)
        (lease,) = hv.claim("me", batch=BATCH)
        hv.complete(lease.token, result={"actions": [delete("a"), {"do": "task", "title": "t"}]})
        found = hv.plan(BATCH)
        assert "not started in a folder" in found.refused[0].refused
        assert [each.kind for each in found.to_do] == ["task"]


class TestTogether:
    def test_two_that_clash(self, hv, given):
        first, *_ = given(
            [move("in/a.md", "x.md")],
            [move("in/a.md", "y.md")],
            [move("in/b.md", "x.md")],
            [edit("in/b.md", status="done")],
            [edit("in/b.md", status="open")],
            [write("in/b.md", "all new")],
            [delete("in/c.md")],
            [edit("in/c.md", status="done")],
            [create("new")],
            [create("new", "other")],
            [{"do": "task", "title": "t", "key": "k"}],
            [{"do": "task", "title": "u", "key": "k"}],
        )
        found = hv.plan(BATCH)
        assert [each.what for each in found.to_do] == [
            "move in/a.md → x.md",
            "edit in/b.md",
            "delete in/c.md",
            "create new",
            "task “t”",
        ]
        assert found.refused[0].refused == f"in/a.md: task {first} takes it away"
        assert found.refused[1].refused == f"x.md: task {first} puts a file there"
        assert len(found.refused) == 7

    def test_one_on_top_of_the_other(self, hv, given, folder):
        given(
            [
                edit("in/a.md", status="done"),
                move("in/a.md", "old/a.md"),
                edit("old/a.md", by="ann"),
                move("in/b.md", "in/a.md"),
                delete("in/a.md"),
                create("in/a.md"),
                edit("in/a.md", status="new"),
                edit("in/c.md", status="done"),
            ],
            [edit("in/c.md", by="bob")],
        )
        before = tree(folder)
        assert hv.plan(BATCH).refused == ()
        done = apply(hv)
        assert (done.applied, done.failed) == (9, ())
        assert (folder / "old/a.md").read_text() == "---\nstatus: done\nby: ann\n---\nhello\n"
        assert "status: new" in (folder / "in/a.md").read_text()
        assert (folder / "in/c.md").read_text() == "---\nstatus: done\nby: bob\n---\nhello\n"
        assert hv.undo(BATCH).refused == ()
        assert tree(folder) == before

    def test_links_between_folders_inside_lead_to_the_same_file(self, hv, given, folder):
        (folder / "alias").symlink_to("in")
        given([move("alias/a.md", "x.md")], [delete(str(folder / "in" / "a.md"))])
        found = hv.plan(BATCH)
        assert [each.what for each in found.to_do] == ["move in/a.md → x.md"]
        assert "takes it away" in found.refused[0].refused

    def test_counts_diffs_and_what_is_already_so(self, hv, given, folder):
        given(
            [edit("in/a.md", status="done")],
            [edit("in/b.md", status="open")],
            [create("n", "one\ntwo")],
            [write("in/c.md", TEXT)],
            [move("in/c.md", "./in/c.md")],
        )
        found = hv.plan(BATCH)
        assert (found.kinds, found.categories) == ({"create": 1, "edit": 1}, {"odds": 2})
        assert len(found.unchanged) == 3
        assert "-status: open\n+status: done" in found.to_do[0].diff
        assert found.to_do[1].diff == "one\ntwo"
        assert hv.plan(BATCH, diffs=False).hash == found.hash


class TestApproval:
    def test_only_what_was_seen_is_done(self, hv, given, folder):
        given([write("in/a.md", "mine")])
        seen = hv.plan(BATCH).hash
        (folder / "in" / "a.md").write_text("the owner's")
        with pytest.raises(PlanChanged, match="look at it again"):
            hv.apply(BATCH, seen)
        assert (folder / "in" / "a.md").read_text() == "the owner's"
        assert (states(hv), receipts(hv)) == ([], [])
        assert apply(hv).applied == 1

    def test_is_a_receipt_with_the_hash(self, hv, given):
        given([delete("in/a.md"), delete("in/b.md")])
        seen = hv.plan(BATCH).hash
        hv.apply(BATCH, seen)
        first, *rest = hv.receipts(BATCH)
        assert first.text == f"plan approved: 2 actions (2 delete), plan {seen}"
        assert (first.actor, first.task, len(rest)) == ("ann", "", 2)
        assert hv.verify(BATCH)[0].problem is None

    def test_nothing_is_approved_that_was_not_asked_for(self, hv, given, folder):
        given([delete("in/a.md")])
        before = tree(folder)
        assert hv.apply(BATCH).applied == 0
        assert (tree(folder), receipts(hv)) == (before, [])

    def test_a_second_time_there_is_nothing_to_do(self, hv, given, folder):
        given([delete("in/a.md")], [create("x")])
        apply(hv)
        once, said = tree(folder), receipts(hv)
        assert hv.plan(BATCH).to_do == ()
        assert apply(hv).applied == 0
        assert (tree(folder), receipts(hv)) == (once, said)

    def test_chunks_that_are_not_approved_are_left_out(self, hv, given):
        given([delete("in/a.md")], gate="each")
        batch = hv.store.read(queries.batch, BATCH).id
        hv.store.write(chunks.declare, batch, ["one", "two"], "each")
        new = [hypervisor.NewTask(n, chunk=1) for n in "bc"]
        hv.add(new, BATCH)
        for lease in hv.claim("me", 2, batch=BATCH):
            hv.complete(lease.token, result=result(delete(f"in/{lease.task.title}.md")))
        assert [each.what for each in hv.plan(BATCH).to_do] == ["delete in/a.md"]
        assert hv.plan(BATCH).held_back == {"open": 2}
        by_me = {"note": "", "in_advance": False, "may_change": True, "actor": "me", "now": 1}
        hv.store.write(chunks.decide, batch, 1, "approved", **by_me)
        assert len(hv.plan(BATCH).to_do) == 3
        hv.store.write(chunks.decide, batch, 1, "rejected", **by_me)
        assert len(hv.plan(BATCH).to_do) == 1

    def test_a_plan_that_another_host_approves_at_the_same_time_is_carried_out_once(
        self, hv, given, monkeypatch
    ):
        """The lock of a plan is a file: it keeps out others on the same host only."""
        given([{"do": "task", "title": "look again"}])

        def later(approve, *args, **options):
            approve(*args, **options)
            return approve(*args, **options)

        intercept(monkeypatch, hv.store, actions.approve, later)
        with pytest.raises(PlanChanged, match="somebody else"):
            hv.apply(BATCH, hv.plan(BATCH).hash)
        assert len(hv.store.read(actions.every, hv.store.read(queries.batch, BATCH).id)) == 1

    def test_what_nobody_proposes_any_more_is_dropped(self, hv, given, folder):
        one, _ = given([delete("in/a.md")], [delete("in/b.md")])
        plan = hv.plan(BATCH)
        new = [(each.task, each.kind, each.data) for each in plan.to_do]
        hv.store.write(
            actions.approve, plan.id, new, "approved", actor="ann", now=hv.now()
        )  # and then a crash
        hv.retry(one)
        done = hv.apply(BATCH)
        assert (done.applied, [each.task for each in done.dropped]) == (1, [one])
        assert (folder / "in/a.md").exists() and not (folder / "in/b.md").exists()


class Interrupted(BaseException):
    """As if the process had ended here."""


class TestOwner:
    """Whatever the owner of a file does meanwhile: it is not lost."""

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
            f"in/{name}.md has changed meanwhile" for name in "abc"
        ]
        (folder / "x" / "new").unlink()
        (folder / "x").rmdir()
        assert tree(folder) == before
        said = [text for text in receipts(hv) if text.startswith("not applied")]
        assert said[0].startswith("not applied #2: write in/a.md: in/a.md has changed meanwhile, ")

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
        assert problems == ["somebody has done so already"] * 3
        hv.undo(BATCH)
        del before["first"]
        assert tree(folder) == before, "what he did is not ours to undo"

    def test_what_failed_can_be_planned_anew(self, hv, approved, folder):
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
        assert "has changed meanwhile" in failed.problem
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
        assert failed.problem == "x is there already"
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
            "x/c.md has changed meanwhile",
            "in/a.md has changed meanwhile",
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


class TestFoldersForMail:
    @pytest.fixture
    def mails(self, folder, given):
        for part in ("box/cur", "box/new", "box/tmp"):
            (folder / part).mkdir(parents=True)
        for name in "de":
            (folder / "box" / "cur" / name).write_text(f"Subject: {name}\n\nhello\n")
        given(*([move(f"box/cur/{name}", f"box/.Spam/cur/{name}")] for name in "de"))

    def test_have_all_three_parts_and_go_as_a_whole(self, hv, mails, folder):
        before = tree(folder)
        assert apply(hv).applied == 2
        assert sorted(path.name for path in (folder / "box/.Spam").iterdir()) == [
            "cur",
            "new",
            "tmp",
        ]
        assert len(hv.undo(BATCH).undone) == 2
        assert tree(folder) == before

    def test_stay_whole_while_one_of_his_is_in_them(self, hv, mails, folder):
        apply(hv)
        (folder / "box/.Spam/new/his").write_text("mail")
        hv.undo(BATCH)
        assert sorted(path.name for path in (folder / "box/.Spam").iterdir()) == [
            "cur",
            "new",
            "tmp",
        ]

    def test_where_a_part_is_a_link_only_what_is_needed_is_made(self, hv, mails, folder):
        (folder / "box/new").rmdir()
        (folder / "kept").mkdir()
        (folder / "box/new").symlink_to("../kept")
        before = tree(folder)
        assert apply(hv).applied == 2
        assert [path.name for path in (folder / "box/.Spam").iterdir()] == ["cur"]
        assert len(hv.undo(BATCH).undone) == 2
        assert tree(folder) == before

    def test_stay_whole_while_a_part_of_them_is_a_link(self, hv, mails, folder):
        apply(hv)
        (folder / "box/.Spam/new").rmdir()
        (folder / "box/.Spam/new").symlink_to("../cur")
        hv.undo(BATCH)
        assert sorted(path.name for path in (folder / "box/.Spam").iterdir()) == [
            "cur",
            "new",
            "tmp",
        ]

    def test_elsewhere_such_names_mean_nothing(self, hv, given, folder):
        given([move("in/a.md", ".x/cur/a.md")], [move("in/b.md", "in/cur/b.md")])
        apply(hv)
        assert [path.name for path in (folder / ".x").iterdir()] == ["cur"]
        assert not (folder / "in/new").exists()


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
        with pytest.raises(WrongState, match="is at work on this plan"):
            hv.undo(BATCH)
    assert states(hv) == []
    assert apply(hv).applied == 1


def test_a_folder_that_is_not_here(hv, given, folder):
    given([delete("in/a.md")])
    apply(hv)
    folder.rename(folder.with_name("gone"))
    (folder.with_name("gone") / ".hypervisor").rename(folder.with_name("kept"))
    with hypervisor.open(folder.with_name("kept"), relaxed=True) as other:
        with pytest.raises(NotFound, match="there is no folder"):
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
