"""`hv plan`, `hv apply` and `hv undo` as a person or a script uses them."""

from __future__ import annotations

import os

import pytest

import hypervisor
from hypervisor.batches.plans.files import ActionFiles
from hypervisor.batches.sql import actions
from tests.cli.conftest import assert_one_clear_line
from tests.support.proposing import propose, result, tree

EVIL = "in/\x1b]0;owned\x07\u202ecod.md"
TEXT = "---\nstatus: open\n---\nhello\n"


@pytest.fixture
def tidy(project):
    """A project whose batch `tidy` proposes an edit and two moves, one of them out of it."""
    folder = project.folder
    (folder / "in").mkdir()
    for name in ("in/a.md", "in/b.md", EVIL):
        (folder / name).write_text(TEXT)
    with hypervisor.open(folder / ".hypervisor", relaxed=True) as hv:
        hv.actor = "tester"
        propose(
            hv,
            "tidy",
            folder,
            [
                result(
                    {
                        "do": "edit",
                        "path": "in/a.md",
                        "set": {"status": "\x1b[31mdone"},
                        "why": "it\x07 is",
                    },
                    category="\x1b[2Jbills",
                ),
                result({"do": "move", "path": EVIL, "to": "old/c.md"}),
                result({"do": "move", "path": "in/b.md", "to": "../b.md"}),
            ],
        )
    return project


def everything(project):
    return tree(project.folder), project.content()


def change(project, name):
    (project.folder / name).write_text("the owner's")


def test_plan_shows_counts_diffs_and_refusals(tidy):
    before = everything(tidy)
    out = tidy.ok("plan", "tidy")
    assert "tidy: 2 actions to do (1 edit, 1 move)\n" in out
    assert "by category: \\x1b[2Jbills 1, odds 1\n" in out
    assert "\n     -status: open\n" in out
    assert "→ old/c.md" in out
    assert "in/b.md → ../b.md: '../b.md' is outside" in out
    assert everything(tidy) == before


@pytest.mark.parametrize(
    "words", ["plan", "plan --full", "apply --dry-run", "apply --yes", "undo --dry-run"]
)
def test_hostile_text_stays_text(tidy, words):
    command, *options = words.split()
    if command == "undo":
        tidy.ok("apply", "tidy", "--yes")
    result = tidy(command, "tidy", *options)
    assert result.out
    for line in (result.out + result.err).split("\n"):
        assert line.isprintable(), repr(line)


def test_plan_as_json(tidy):
    found = tidy.json("plan", "tidy")
    assert [each["kind"] for each in found["to_do"]] == ["edit", "move"]
    assert found["to_do"][0]["diff"].startswith("--- a/in/a.md\n")
    assert len(found["hash"]) == 64
    assert found["refused"][0]["refused"].startswith("'../b.md' is outside")


def test_long_plans_are_cut_unless_asked_for(project):
    (project.folder / "x").write_text("")
    lines = "\n".join(map(str, range(50)))
    with hypervisor.open(project.folder / ".hypervisor", relaxed=True) as hv:
        many = [{"do": "create", "path": f"new/{n}", "text": lines} for n in range(30)]
        propose(hv, "many", project.folder, [result(*many)])
    short, full = project.ok("plan", "many"), project.ok("plan", "many", "--full")
    assert "… 10 more (--full shows all)" in short and "… 42 more lines" in short
    assert "create new/29" not in short
    assert "more" not in full and full.count("\n     +49") == 30


def test_dry_run_changes_nothing(tidy):
    before = everything(tidy)
    assert "(dry run: nothing was changed)" in tidy.ok("apply", "tidy", "--dry-run")
    assert everything(tidy) == before
    tidy.ok("apply", "tidy", "--yes")
    before = everything(tidy)
    assert "2 actions to undo" in tidy.ok("undo", "tidy", "--dry-run")
    assert everything(tidy) == before


@pytest.mark.parametrize("command", ["apply", "undo"])
def test_without_a_terminal_the_answer_must_be_given(tidy, command):
    before = tree(tidy.folder)
    assert "--yes" in tidy.refused(2, command, "tidy", stdin="y\n")
    result = tidy(command, "tidy", "--json")
    assert result.code == 2
    assert_one_clear_line(result.err)
    assert tree(tidy.folder) == before


def test_apply_again_says_so_and_undo_restores(tidy):
    before = tree(tidy.folder)
    assert "2 actions applied" in tidy.ok("apply", "tidy", "--yes")
    applied = everything(tidy)
    assert tidy.ok("apply", "tidy", "--yes") == (
        "nothing to do: all actions are already applied, 1 refused\n"
    )
    assert everything(tidy) == applied
    assert tidy.ok("undo", "tidy", "--yes") == "2 actions undone\n"
    assert tree(tidy.folder) == before
    assert tidy.ok("undo", "tidy", "--yes") == "nothing to undo\n"
    assert "all valid" in tidy.ok("receipt", "verify", "tidy")


def test_a_person_is_asked(tidy):
    before = tree(tidy.folder)
    terminal = tidy.terminal("apply", "tidy")
    terminal.wait_for("Carry out 2 actions? [y/N]")
    terminal.press("n\n")
    assert terminal.wait() == 0
    assert tree(tidy.folder) == before
    terminal = tidy.terminal("apply", "tidy")
    terminal.wait_for("[y/N]")
    terminal.press("y\n")
    assert terminal.wait() == 0
    assert (tidy.folder / "old" / "c.md").exists()
    terminal = tidy.terminal("undo", "tidy")
    terminal.wait_for("Undo this? [y/N]")
    terminal.press("yes\n")
    assert terminal.wait() == 0
    assert tree(tidy.folder) == before


def test_what_changed_while_a_person_was_thinking_is_shown_again(tidy):
    terminal = tidy.terminal("apply", "tidy", rows=60)
    terminal.wait_for("Carry out 2 actions? [y/N]")
    (tidy.folder / "in/a.md").write_text(TEXT + "something new\n")
    terminal.press("y\n")
    seen = terminal.wait_for(lambda text: text.count("[y/N]") == 2)
    assert "the plan has changed since it was shown" in seen.replace("\n", "")
    assert (tidy.folder / "in/a.md").read_text() == TEXT + "something new\n"
    terminal.press("y\n")
    assert terminal.wait() == 0
    assert (tidy.folder / "in/a.md").read_text().endswith("something new\n")
    assert "status: open" not in (tidy.folder / "in/a.md").read_text()


def test_what_cannot_be_done_is_named_and_counts(tidy):
    with hypervisor.open(tidy.folder / ".hypervisor", relaxed=True) as hv:
        plan = hv.plan("tidy")
        new = [(each.task, each.kind, each.data) for each in plan.to_do]
        hv.store.write(actions.approve, plan.id, new, "approved", actor="tester", now=hv.now())
    change(tidy, "in/a.md")
    code, out, err = tidy("apply", "tidy", "--yes", "--fail-fast")
    assert (code, err) == (9, "hv: #1 edit in/a.md: in/a.md has changed since\n")
    assert "0 actions applied, 1 failed, 1 still to do" in out
    again = tidy.json("apply", "tidy", "--yes")  # what was left, and the edit planned again
    assert (again["resumed"], again["applied"], again["failed"]) == (1, 2, [])
    (tidy.folder / "old/c.md").write_text("the owner's")
    code, out, err = tidy("undo", "tidy", "--yes")
    assert (code, err) == (9, "hv: #2 move " + err.split("move ")[1])
    assert "1 action undone, 1 left alone" in out
    assert (tidy.folder / "in/a.md").read_text() == "the owner's"
    assert (tidy.folder / "old/c.md").read_text() == "the owner's"


def test_two_at_once(tidy):
    own = str(tidy.folder / ".hypervisor" / "batches" / "tidy")
    with ActionFiles(str(tidy.folder), own).lock("hv apply of bob"):
        for command in ("apply", "undo"):
            line = tidy.refused(5, command, "tidy", "--yes")
            assert f"hv apply of bob (process {os.getpid()}) is working" in line


@pytest.mark.parametrize("command", [("plan",), ("apply", "--yes"), ("undo", "--yes")])
def test_no_such_batch(tidy, command):
    assert "no batch named 'nope'" in tidy.refused(4, *command, "nope")


def test_nothing_proposed(project):
    with hypervisor.open(project.folder / ".hypervisor", relaxed=True) as hv:
        propose(hv, "quiet", project.folder, [None, {"category": "x"}])
    assert project.ok("plan", "quiet") == "quiet: 0 actions to do\n"
    assert project.ok("apply", "quiet", "--yes") == "nothing to do: no changes are proposed\n"
    assert project.ok("undo", "quiet", "--yes") == "nothing to undo\n"


def test_a_correction_in_the_review_is_what_the_plan_proposes(tidy):
    task = tidy.tasks("tidy")[0]["id"]
    corrected = tidy("review", "tidy", "--set", task, "status=closed")
    assert (corrected.code, corrected.err) == (0, "")
    assert "+status: closed" in tidy.ok("plan", "tidy")
    renamed = tidy("review", "tidy", "--set", task, "category=bill's")
    assert f"--retry --task {task} --note" in renamed.err
    assert_one_clear_line(renamed.err)
