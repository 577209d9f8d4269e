"""The plan of one chunk: what it would change, before it is approved."""

from __future__ import annotations

import pytest

import hypervisor
from hypervisor.batches.plans.diff import MAX_LINES, MAX_SIZE, NO_NEWLINE, file_diff
from hypervisor.batches.sql import chunks
from hypervisor.core.errors import NotFound, WrongState
from hypervisor.queue.sql import queries
from tests.batches.plans.proposed import BATCH, TEXT, apply, create, delete, edit, move, write
from tests.support.proposing import propose, result, tree


@pytest.fixture
def chunked(hv, folder):
    """One chunk per list of lists of actions; all have run, none is decided."""

    def made(*lists):
        propose(hv, BATCH, folder, [None], gate="each")
        batch = hv.store.read(queries.batch, BATCH).id
        names = [str(n) for n in range(1, len(lists) + 1)]
        hv.store.write(chunks.declare, batch, names, "none")
        for number, tasks in enumerate(lists, 1):
            hv.add([hypervisor.NewTask(f"{number}", chunk=number) for _ in tasks], BATCH)
            for lease, actions in zip(hv.claim("me", 100, batch=BATCH), tasks, strict=True):
                hv.complete(lease.token, result=result(*actions))
        hv.store.write(
            lambda s: s.run("UPDATE chunks SET state = 'open' WHERE batch = ?", (batch,))
        )

    return made


def whats(plan):
    return [action.what for action in plan.to_do]


def test_a_chunk_is_planned_before_it_is_approved(hv, folder, chunked):
    chunked([[edit("in/a.md", status="done")]], [[delete("in/b.md")], [create("n", "x\n")]])
    before = tree(folder)
    assert hv.plan(BATCH).to_do == ()
    second = hv.plan(BATCH, chunk=2)
    assert whats(second) == ["delete in/b.md", "create n"]
    assert (second.chunk, second.ready, second.held_back) == (2, 0, {"open": 1})
    assert hv.plan(BATCH, diffs=False, chunk=2).hash == second.hash
    assert tree(folder) == before
    hv.decide(BATCH, "approved", 2)
    assert hv.plan(BATCH).hash == second.hash, "what was shown is what is applied"
    hv.decide(BATCH, "rejected", 2)
    assert whats(hv.plan(BATCH, chunk=2)) == whats(second), "as if it were approved"
    with pytest.raises(NotFound, match="no chunk 3"):
        hv.plan(BATCH, chunk=3)


def test_a_chunk_is_planned_on_top_of_approved_ones(hv, folder, chunked):
    chunked([[move("in/a.md", "x.md")]], [[delete("in/a.md")], [delete("in/b.md")]])
    assert whats(hv.plan(BATCH, chunk=2)) == ["delete in/a.md", "delete in/b.md"]
    hv.decide(BATCH, "approved", 1)
    plan = hv.plan(BATCH, chunk=2)
    assert (whats(plan), plan.ready) == (["delete in/b.md"], 1)
    assert "removes it" in plan.refused[0].refused
    apply(hv)
    assert "no such file" in hv.plan(BATCH, chunk=2).refused[0].refused


def test_the_hash_of_a_chunk_changes_with_its_files(hv, folder, chunked):
    chunked([[write("in/a.md", "new")]])
    shown = hv.plan(BATCH, chunk=1).hash
    assert hv.plan(BATCH, chunk=1).hash == shown
    (folder / "in" / "a.md").write_text("the owner's")
    assert hv.plan(BATCH, chunk=1).hash != shown


def test_an_approval_names_the_files_it_would_change(hv, folder, chunked):
    chunked([[write("in/a.md", "new")]])
    shown, planned = hv.review(BATCH, 1).digest, hv.plan(BATCH, chunk=1).hash
    (folder / "in" / "a.md").write_text("the owner's")
    with pytest.raises(WrongState, match="files they concern"):
        hv.decide(BATCH, "approved", 1, shown=shown, planned=planned)
    assert hv.chunks(BATCH)[0].state == "open"
    planned = hv.plan(BATCH, chunk=1).hash
    assert hv.decide(BATCH, "approved", 1, shown=shown, planned=planned).decision == "approved"


def test_diffs_of_some_actions_and_of_one_task(hv, chunked):
    chunked([[edit(f"in/{name}.md", status="done")] for name in "abc"])
    plan = hv.plan(BATCH, range(1, 2), chunk=1)
    assert [bool(action.diff) for action in plan.to_do] == [False, True, False]
    assert [action.added for action in plan.to_do] == [None, 1, None]
    last = plan.to_do[2].task
    (alone,) = hv.plan(BATCH, chunk=1, task=last).to_do
    assert (alone.what, alone.added, alone.removed) == ("edit in/c.md", 1, 1)


def test_every_change_of_a_file_has_a_diff(hv, chunked):
    chunked([[write("in/a.md", TEXT + "more\n"), create("n", "one\ntwo"), delete("in/b.md")]])
    replaced, created, deleted = hv.plan(BATCH, chunk=1).to_do
    assert (replaced.added, replaced.removed) == (1, 0)
    assert created.diff == f"--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+one\n+two\n{NO_NEWLINE}"
    assert (created.added, created.removed) == (2, 0)
    assert (deleted.added, deleted.removed) == (0, 4)
    assert deleted.diff.splitlines()[:2] == ["--- a/in/b.md", "+++ /dev/null"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a\0b", "binary file: 3 bytes"),
        (b"x" * (MAX_SIZE + 1), "too large for a diff: 500,001 bytes"),
        (b"\n" * (MAX_LINES + 1), "too large for a diff: 5,001 bytes"),
    ],
)
def test_what_cannot_be_compared_is_only_measured(content, says):
    assert file_diff(None, content, "x") == (says, None, None)
    assert file_diff(content, b"", "x").text == f"{says} become 0"


def test_a_path_cannot_forge_a_diff():
    diff = file_diff(b"a\n", b"b\n", "x\n+++ b/other")
    assert diff.text.splitlines()[1] == r"+++ b/x\n+++ b/other"
