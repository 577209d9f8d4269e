"""Plans: what is accepted, what is refused, and that no file of the user is overwritten."""

from __future__ import annotations

import os

import pytest

import hypervisor
from hypervisor.batches.plans.action import PlanChanged
from hypervisor.batches.sql import actions, chunks
from hypervisor.queue.sql import queries
from tests.batches.plans.proposed import (
    BATCH,
    TEXT,
    apply,
    create,
    delete,
    edit,
    move,
    receipts,
    states,
    write,
)
from tests.support.intercept import intercept
from tests.support.proposing import propose, result, tree


class TestRefused:
    """None of these may ever be carried out."""

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
        assert all("not a regular file" in reason for reason in self.reasons(hv))

    @pytest.mark.parametrize(
        "path",
        [".hypervisor/store.db", ".git/hooks/post-commit", "in/.git/config", "in/.hv-x-1.tmp"],
    )
    def test_what_is_nobodys_business(self, hv, given, path):
        given([create(path)], [move("in/a.md", path)])
        assert all("cannot be part of a plan" in reason for reason in self.reasons(hv))

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
            "'in' is not a regular file",
            "nowhere: no such file",
            "'a.md' is not a folder",
            "'in/pipe' is not a regular file",
            "in/b.md: it already exists",
            "in/a.md: it already exists",
            "'in' is not a regular file",
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
        assert found.refused[0].refused == f"in/a.md: task {first} removes it"
        assert found.refused[1].refused == f"x.md: task {first} creates it"
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
        assert "removes it" in found.refused[0].refused

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
        assert "+one\n+two" in found.to_do[1].diff
        assert hv.plan(BATCH, diffs=False).hash == found.hash


class TestApproval:
    def test_only_what_was_seen_is_done(self, hv, given, folder):
        given([write("in/a.md", "mine")])
        seen = hv.plan(BATCH).hash
        (folder / "in" / "a.md").write_text("the owner's")
        with pytest.raises(PlanChanged, match="review it again"):
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
        """The lock of a plan is a file: it only works on one host."""
        given([{"do": "task", "title": "look again"}])

        def later(approve, *args, **options):
            approve(*args, **options)
            return approve(*args, **options)

        intercept(monkeypatch, hv.store, actions.approve, later)
        with pytest.raises(PlanChanged, match="someone else"):
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
