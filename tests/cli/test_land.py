"""hv land: the finished work of a batch is merged after a look at it."""

from __future__ import annotations

import shutil

import pytest

from hypervisor.core.errors import EXIT_CODES, EXIT_UNSUCCESSFUL
from tests.cli.conftest import until
from tests.cli.test_git_commands import described, hv, repo, run, task_in

__all__ = ["hv", "repo"]

EDIT = 'test "$1" = none || echo changed >> $1.txt'


@pytest.fixture
def worked(hv, repo):
    """A batch that worked in clones, and was not merged."""
    assert run(hv, EDIT, "--workspace", "clone", items=["a", "b", "none"]).code == 0
    assert repo.tip("hv/edits") is None
    return hv


def test_a_dry_run_says_what_would_land_and_changes_nothing(worked, repo):
    out = worked.ok("land", "edits", "--dry-run")
    assert out.startswith("2 tasks would land on hv/edits (branch)\n")
    assert "NOT VERIFIED" in out and "it changed nothing" in out
    plan = described("land", worked.json("land", "edits", "--dry-run"))
    assert [task["files"] for task in plan["tasks"]].count(1) == 2
    assert repo.tip("hv/edits") is None
    assert {task["state"] for task in worked.json("ls")} == {"done"}


def test_work_lands_after_a_look_and_later_elsewhere(worked, repo):
    out = worked.ok("land", "edits", "--verify", "test -f a.txt")
    tip = repo.tip("hv/edits")
    assert f"{tip[:12]} on branch hv/edits" in out
    assert repo.read(tip, "a.txt") == "a\nchanged\n" and repo.read(tip, "b.txt") == "b\nchanged\n"
    assert {task["state"] for task in worked.json("ls")} == {"done"}
    assert "0 tasks to land" in worked.ok("land", "edits")
    assert repo.read("main", "a.txt") == "a\n"
    answer = described("land", worked.json("land", "edits", "--merge", "local"))
    assert answer["verify"] == ["test -f a.txt"]
    landed = [task for task in answer["landed"] if task["commit"]]
    assert {task["target"] for task in landed} == {"branch main"}
    assert repo.read("main", "a.txt") == "a\nchanged\n"
    assert (worked.folder / "b.txt").read_text() == "b\nchanged\n"


def test_work_whose_workspace_is_gone_lands_from_what_was_saved(worked, repo):
    shutil.rmtree(worked.folder / ".hypervisor" / "git" / "work")
    worked.ok("land", "edits", "--verify", "true")
    assert repo.read(repo.tip("hv/edits"), "a.txt") == "a\nchanged\n"
    assert repo.read(repo.tip("hv/edits"), "b.txt") == "b\nchanged\n"


def test_what_fails_verification_does_not_land(worked, repo):
    """It is worked on again, as in a batch that merges by itself, and goes to review."""
    result = worked("land", "edits", "--verify", "! grep changed b.txt")
    assert result.code == EXIT_UNSUCCESSFUL, result
    until(lambda: any(task["state"] == "review" for task in worked.json("ls")))
    assert repo.read(repo.tip("hv/edits"), "a.txt") == "a\nchanged\n"
    assert repo.read(repo.tip("hv/edits"), "b.txt") == "b\n"
    assert "verification failed" in worked.task(task_in(worked, "review"))["reason"]


def test_a_batch_without_clones_has_nothing_to_land(hv, repo):
    assert run(hv, "true", items=["a"]).code == 0
    message = hv.refused(EXIT_CODES["invalid_input"], "land", "edits")
    assert "did not work in clones" in message


@pytest.fixture
def dirty(hv, repo):
    """A batch that started from uncommitted changes, and was not merged."""
    (hv.folder / "a.txt").write_text("mine\n")
    (hv.folder / "new.txt").write_text("new\n")
    options = ("--workspace", "clone", "--include-dirty")
    result = run(hv, "cat a.txt new.txt > seen-$1.txt", *options)
    assert result.code == 0, result
    assert "uncommitted changes are part of the clones: a.txt, new.txt" in result.out
    return hv


def test_uncommitted_changes_land_as_a_commit_of_their_own(dirty, repo):
    out = dirty.ok("land", "edits", "--verify", "grep mine a.txt")
    below = repo.git.text("log", "--format=%h %s", "--grep=^Uncommitted changes$", "hv/edits")
    assert below.splitlines()[1:] == []
    commit = repo.git.text("rev-parse", below.split()[0])
    assert f"started from land too, as commit {commit[:12]}" in out
    assert repo.git.text("rev-parse", f"{commit}^") == repo.tip("main")
    changed = repo.git.text("diff", "--name-only", commit, "hv/edits").splitlines()
    assert changed == ["seen-a.txt", "seen-b.txt"]
    assert (dirty.folder / "a.txt").read_text() == "mine\n"  # and stay where they are
    assert repo.git.text("status", "--porcelain").splitlines() == [" M a.txt", "?? new.txt"]


def test_uncommitted_changes_never_land_on_the_users_branch_as_the_work_of_a_task(dirty, repo):
    before = repo.tip("main")
    repo.git.run("stash", "--include-untracked")
    message = dirty.refused(EXIT_CODES["workspace"], "land", "edits", "--merge", "local")
    assert "main does not have the uncommitted changes" in message
    assert "commit them to main, then run hv land again; or use --merge branch" in message
    assert repo.tip("main") == before
    assert {task["state"] for task in dirty.json("ls")} == {"done"}
    repo.git.run("stash", "pop")
    repo.commit({}, "by the user")
    plan = described("land", dirty.json("land", "edits", "--merge", "local", "--verify", "true"))
    assert plan["uncommitted"] == "" and plan["paused"] == ""
    assert repo.read("main", "seen-b.txt") == "mine\nnew\n"
    by_tasks = repo.git.text("diff", "--name-only", "main^{/by the user}", "main").splitlines()
    assert by_tasks == ["seen-a.txt", "seen-b.txt"]


def test_a_run_that_merges_waits_until_its_uncommitted_changes_are_committed(hv, repo):
    (hv.folder / "a.txt").write_text("mine\n")
    options = ("--merge", "local", "--include-dirty", "--verify", "true", "--detach")
    result = run(hv, "cat a.txt > seen-$1.txt", *options, items=["x"])
    assert "nothing lands until you have committed them" in result.out
    repo.git.run("stash")
    until(lambda: any(lane["paused"] for lane in hv.json("queue")))
    assert "commit them to main, then this continues" in hv.ok("queue")
    repo.git.run("stash", "pop")
    tip = repo.commit({}, "by the user")
    until(lambda: hv.json("ls")[0]["state"] == "done")
    assert repo.git.text("diff", "--name-only", tip, "main") == "seen-x.txt"
