"""A later run into the same branch starts from what the branch does not have yet: that comes in by
a commit of its own, and the commit of a task has only the changes of the task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hypervisor.git.decisions import EntryConflicted, EntryLanded
from hypervisor.git.hub import UNCOMMITTED
from tests.git.queue_field import BRANCH, only

STRATEGIES = ["merge", "squash", "rebase"]
LINES = "".join(f"line {number}\n" for number in range(9))


def edited(line, text):
    return LINES.replace(f"line {line}\n", f"{text}\n")


def run(field, name, base, change, strategy):
    """A run of one task that started from `base`."""
    field.base = base
    entry = field.entry(name, change, strategy=strategy)
    decisions = field.run([entry], replace(field.lane(), base=base))
    return only(decisions, EntryLanded | EntryConflicted)


@pytest.fixture
def start(field):
    """The commit that is checked out."""
    return field.repo.commit({"mine": LINES, "f": LINES}, "start")


def uncommitted(field, start, files):
    """Uncommitted changes on top of it, as --include-dirty commits them."""
    field.repo.branch("dirty", start, files)
    field.repo.git.run("checkout", "--quiet", "dirty")
    field.repo.git.run("commit", "--quiet", "--amend", "--message", UNCOMMITTED)
    commit = field.repo.git.text("rev-parse", "HEAD")
    field.repo.git.run("checkout", "--quiet", "main")
    field.repo.git.run("branch", "-D", "dirty")
    field.hub.run("fetch", "--quiet", str(field.repo.folder), f"{commit}:refs/hv/bases/{commit}")
    return commit


def first_run(field, start, strategy):
    dirty = uncommitted(field, start, {"mine": edited(1, "mine")})
    landed = run(field, "one", dirty, {"one": "1\n"}, strategy)
    assert isinstance(landed, EntryLanded)


def changed_by(field, commit):
    """The files of a landed commit that differ from what it was put on."""
    return field.hub.names("diff", "--name-only", "-z", f"{commit}^1", commit)


def contents(field):
    names = ("mine", "one", "two")
    return {name: field.repo.read(BRANCH, name) for name in names}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "mine",
    [edited(1, "mine").replace("line 7", "more"), edited(1, "changed again")],
    ids=["more", "changed"],
)
def test_new_uncommitted_changes_are_no_part_of_a_task(field, start, strategy, mine):
    first_run(field, start, strategy)
    dirty = uncommitted(field, start, {"mine": mine, "new": "new\n"})
    landed = run(field, "two", dirty, {"two": "2\n"}, strategy)
    assert isinstance(landed, EntryLanded)
    assert changed_by(field, landed.commit) == ["two"]
    assert contents(field) == {"mine": mine, "one": "1\n", "two": "2\n"}
    assert field.repo.read(BRANCH, "new") == "new\n"
    assert field.hub.succeeds("merge-base", "--is-ancestor", dirty, landed.commit)
    assert field.passed(field.repo.tip(BRANCH))


def test_the_same_uncommitted_changes_come_in_only_once(field, start):
    first_run(field, start, "squash")
    before = field.repo.tip(BRANCH)
    dirty = uncommitted(field, start, {"mine": edited(1, "mine")})
    landed = run(field, "two", dirty, {"two": "2\n"}, "squash")
    assert field.repo.git.text("rev-parse", f"{landed.commit}^1") == before
    assert contents(field) == {"mine": edited(1, "mine"), "one": "1\n", "two": "2\n"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_commits_of_the_user_are_no_part_of_a_task_either(field, start, strategy):
    first_run(field, start, strategy)
    base = field.repo.commit({"f": edited(3, "committed"), "new": "new\n"}, "mine")
    landed = run(field, "two", base, {"two": "2\n"}, strategy)
    assert isinstance(landed, EntryLanded)
    assert changed_by(field, landed.commit) == ["two"]
    assert field.repo.read(BRANCH, "new") == "new\n"
    assert field.hub.succeeds("merge-base", "--is-ancestor", base, landed.commit)


def test_a_branch_that_the_user_has_merged_needs_no_merge_commit(field, start):
    first_run(field, start, "squash")
    field.repo.git.run("merge", "--quiet", "--ff-only", BRANCH)
    base = field.repo.commit({"new": "new\n"}, "mine")
    landed = run(field, "two", base, {"two": "2\n"}, "squash")
    assert field.repo.git.text("rev-parse", f"{landed.commit}^1") == base
    assert field.repo.tip(BRANCH) == landed.commit


def test_what_conflicts_with_the_branch_makes_its_tasks_conflict(field, start):
    field.base = start
    run(field, "one", start, {"f": edited(2, "of the task")}, "squash")
    before = field.repo.tip(BRANCH)
    dirty = uncommitted(field, start, {"f": edited(2, "of the user")})
    conflicted = run(field, "two", dirty, {"two": "2\n"}, "squash")
    assert isinstance(conflicted, EntryConflicted)
    assert (conflicted.tip, conflicted.paths) == (before, ("f",))
    assert field.repo.tip(BRANCH) == before


def test_a_task_whose_work_is_among_the_users_changes_lands_with_them(field, start):
    first_run(field, start, "squash")
    dirty = uncommitted(field, start, {"two": "2\n"})
    field.base = start
    entry = field.entry("two", {"two": "2\n"}, strategy="squash")
    landed = only(field.run([entry], replace(field.lane(), base=dirty)), EntryLanded)
    assert landed.commit == field.repo.tip(BRANCH) and not landed.already
    assert contents(field)["two"] == "2\n"
    assert field.passed(landed.commit)


def test_a_branch_that_was_deleted_is_there_when_work_is_said_to_have_landed(field, start):
    run(field, "one", start, {"one": "1\n"}, "squash")
    field.repo.git.run("branch", "--quiet", "-D", BRANCH)
    landed = run(field, "same", start, {"one": "1\n"}, "squash")
    assert isinstance(landed, EntryLanded)
    assert field.repo.tip(BRANCH) == landed.commit
    assert contents(field)["one"] == "1\n"
