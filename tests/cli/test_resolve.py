"""Conflicts with the commits of others, and hv resolve."""

from __future__ import annotations

from pathlib import Path

from hypervisor.core.errors import EXIT_CODES, EXIT_UNSUCCESSFUL
from tests.cli.conftest import until
from tests.cli.test_git_commands import described, hv, repo, run, task_in

__all__ = ["hv", "repo"]

LOCAL = ("--merge", "local", "--verify", "true")


def test_work_that_conflicts_with_a_commit_of_the_user_is_redone_on_top_of_it(hv, repo):
    base = repo.tip("main")
    repo.commit({"shared.txt": "by the user\n"}, "by the user")
    result = run(hv, "echo by $1 >> shared.txt", "--base", base, *LOCAL, items=["a"])
    assert result.code == 0, result
    assert (hv.folder / "shared.txt").read_text() == "by the user\nby a\n"
    assert [task["attempts"] for task in hv.json("ls")] == [2]


def in_conflict(hv, repo):
    """A task in review: each attempt insists on the commit it knows."""
    base = repo.tip("main")
    repo.commit({"shared.txt": "by the user\n"}, "by the user")
    script = f"git reset --quiet --hard {base}; echo by $1 >> shared.txt"
    assert run(hv, script, *LOCAL, items=["a"]).code == EXIT_UNSUCCESSFUL
    task = task_in(hv, "review")
    assert hv.task(task)["attempts"] == 3
    assert hv.task(task)["reason"].startswith("conflict in shared.txt with ")
    return task


def test_a_person_resolves_a_conflict_in_a_prepared_workspace(hv, repo):
    task = in_conflict(hv, repo)
    listed = hv.ok("review")
    batch = hv.task(task)["batch"]
    assert hv.ok("review", batch) == listed  # it has no chunks
    assert task in listed and f"hv resolve {'TASK'}" in listed
    assert [entry["task"]["id"] for entry in hv.json("review")] == [task]
    made = described("resolve", hv.json("resolve", task))
    file = Path(made["folder"], "shared.txt")
    assert made["conflicts"] == ["shared.txt"] and "<<<<<<<" in file.read_text()
    assert f"hv resolve {task} --done" in hv.ok("resolve", task)
    refused = hv.refused(EXIT_CODES["wrong_state"], "resolve", task, "--done")
    assert "still have conflict markers" in refused
    file.write_text("start\nby the user\nby a\n")
    assert hv.json("resolve", task)["conflicts"] == []  # prepared once: the edit is still there
    hv.ok("resolve", task, "--done")
    until(lambda: hv.task(task)["state"] == "done")
    assert (hv.folder / "shared.txt").read_text() == "start\nby the user\nby a\n"
    assert "not in review" in hv.refused(EXIT_CODES["wrong_state"], "resolve", task)
