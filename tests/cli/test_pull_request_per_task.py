"""--merge pr --pr-per task: a pull request for each task, opened once, whatever is killed."""

from __future__ import annotations

import os
import shlex

import pytest

from hypervisor.selftest.repositories import bare_clone, write_script
from tests.cli.test_git_commands import described, hv, repo, run

__all__ = ["hv", "repo"]

# A forge with a file for each pull request. As it opens the first one, it kills the merger.
GH = """#!/bin/sh
state={state}
branch=$(echo "$*" | sed 's/.*--head \\([^ ]*\\).*/\\1/')
file="$state/${{branch##*/}}"
case "$1 $2" in
"pr list")
    test -s "$file" || {{ echo '[]'; exit 0; }}
    head=$(git --git-dir={remote} rev-parse "refs/heads/$branch")
    printf '[{{"url": "%s", "headRefOid": "%s"}}]' "$(cat "$file")" "$head";;
"pr create")
    set -C
    echo "https://forge.example/${{branch##*/}}" > "$file" || exit 1
    echo "$*" >> "$state/created"
    if mkdir "$state/killed"; then kill -9 $PPID; fi;;
esac
"""


@pytest.fixture
def remote(hv, repo):
    remote = bare_clone(repo, hv.folder.parent / "remote.git")
    repo.git.run("remote", "add", "origin", f"file://{remote.folder}")
    return remote


@pytest.fixture
def forge(hv, remote):
    folder = hv.folder.parent / "forge"
    (folder / "bin").mkdir(parents=True)
    places = {"state": shlex.quote(str(folder)), "remote": shlex.quote(remote.folder)}
    write_script(folder / "bin" / "gh", GH.format(**places))
    hv.env["PATH"] = f"{folder / 'bin'}:{os.defpath}"
    return folder


def test_each_task_has_a_pull_request_even_if_the_merger_is_killed(hv, repo, remote, forge):
    before = remote.commit_of("refs/heads/main")
    options = ("--merge", "pr", "--pr-per", "task", "--verify", "true")
    result = run(hv, "echo changed >> $1.txt", *options)
    assert result.code == 0, result
    assert (forge / "killed").exists()
    created = sorted((forge / "created").read_text().splitlines())
    tasks = {task["id"]: task["title"] for task in hv.json("ls")}
    assert len(created) == len(tasks) == 2
    for task, title in tasks.items():
        url = f"https://forge.example/edits-{task}"
        (line,) = [line for line in created if f"--head hv/edits-{task} " in line]
        assert f"--base main --title {title} --body Task {task} of batch edits." in line
        merged = described("show", hv.json("show", task))["merged"]
        assert merged["target"] == url
        assert f"on {url}" in hv.ok("show", task)
        tip = remote.commit_of(f"refs/heads/hv/edits-{task}")
        assert merged["commit"] == tip
        changed = remote.text("diff", "--name-only", before, tip)
        assert changed == f"{title.split()[-1]}.txt"
    summary = hv.json("summary", "edits")
    assert {task["target"] for task in summary["tasks"]} == {
        f"https://forge.example/edits-{task}" for task in tasks
    }
    assert remote.commit_of("refs/heads/main") == before
