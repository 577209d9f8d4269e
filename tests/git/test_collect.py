"""Collecting: the agent's work, wherever it left it, or a clear reason why a person must look."""

from __future__ import annotations

import os
import random
from types import SimpleNamespace
from typing import cast

import pytest

from hypervisor.core.errors import NotCollected
from hypervisor.git.collect import Collected, collect
from hypervisor.git.hub import open_hub
from hypervisor.git.scope import problem_of
from hypervisor.git.snapshot import latest, take
from hypervisor.git.work_tree import Limits
from hypervisor.git.workspace import create
from hypervisor.queue.task import Task
from tests.git.support import agent, commit_files, files_at, init, repository_at

REF = "refs/hv/tasks/task1/1"


def gather(workspace, limits=None) -> Collected:
    return collect(workspace, "task1", 1, "Add a feature", {}, now=1, limits=limits)


def subjects(hub, collected) -> list[str]:
    """The commits since the base, newest first."""
    lines: str = hub.git.text("log", "--format=%s", f"{collected.base}..{collected.head}")
    return lines.splitlines()


def last_files(hub) -> dict[str, str]:
    """Those of the last snapshot."""
    snapshot = latest(hub, "task1", 1)
    assert snapshot is not None
    return files_at(hub.git, snapshot.commit)


def test_the_agents_commits_and_one_of_what_is_left(workspace, hub):
    agent(workspace.folder, "echo 1 > one; git add .; git commit -qm one; echo 2 > two; rm a.txt")
    before = agent(workspace.folder, "git status; cat .git/index | sha256sum; ls -A .git")
    collected = gather(workspace)
    assert subjects(hub, collected) == ["Add a feature", "one"]
    assert collected.changed_paths == ("a.txt", "one", "two") and not collected.no_change
    assert collected.base == workspace.base and not collected.notes and not collected.left_out
    assert hub.refs("refs/hv/tasks") == {REF: collected.head}
    body = hub.git.text("log", "-1", "--format=%B", collected.head)
    assert body.endswith("\n\nHypervisor-Task: task1\nHypervisor-Attempt: 1")
    assert agent(workspace.folder, "git status; cat .git/index | sha256sum; ls -A .git") == before


def test_repeated_it_is_the_same(workspace, hub):
    agent(workspace.folder, "echo 2 > two")
    first = gather(workspace)
    assert collect(workspace, "task1", 1, "Add a feature", {}, now=99) == first
    agent(workspace.folder, "echo 3 > two")
    assert gather(workspace).head != first.head


def test_only_commits(workspace, hub):
    agent(workspace.folder, "echo 1 > one; git add .; git commit -qm one")
    head = agent(workspace.folder, "git rev-parse HEAD").strip()
    assert gather(workspace).head == head


@pytest.mark.parametrize(
    "script",
    [
        "true",
        "echo x > x; git add .; git commit -qm x; git revert -n HEAD; git commit -qm y",
        "touch a.txt; echo x > x.log",
    ],
)
def test_no_change(workspace, script):
    collected = gather_after(workspace, script)
    assert collected.no_change and collected.changed_paths == ()


def gather_after(workspace, script) -> Collected:
    agent(workspace.folder, script)
    return gather(workspace)


def test_a_clean_checkout_of_another_branch(workspace, hub):
    collected = gather_after(
        workspace, "echo 1 > one; git add .; git commit -qm one; git checkout -q main"
    )
    assert subjects(hub, collected) == ["one"]
    assert collected.notes == ("HEAD was at main; took the commits of hv/batch/task1",)


def test_work_on_a_branch_of_the_agents_own(workspace, hub):
    collected = gather_after(
        workspace,
        "git checkout -qb feature; echo 1 > one; git add .; git commit -qm one; echo 2 > one",
    )
    assert subjects(hub, collected) == ["Add a feature", "one"]
    assert "took the commits of feature" in collected.notes[0]


def test_work_on_a_detached_head(workspace, hub):
    collected = gather_after(
        workspace,
        "git checkout -q --detach; echo 1 > one; git add .; git commit -qm one; "
        "git branch -D hv/batch/task1",
    )
    assert subjects(hub, collected) == ["one"]


def test_commits_here_and_changes_there(workspace, hub):
    collected = gather_after(
        workspace,
        "echo 1 > one; git add .; git commit -qm one; git checkout -q main; echo 2 > folder/b.txt",
    )
    assert subjects(hub, collected) == ["Add a feature", "one"]
    files = files_at(hub.git, collected.head)
    assert (files["one"], files["folder/b.txt"]) == ("1\n", "2\n")


def test_commits_here_and_conflicting_changes_there(workspace):
    agent(
        workspace.folder,
        "echo 1 > a.txt; git commit -qam one; git checkout -q main; echo 2 > a.txt",
    )
    with pytest.raises(NotCollected, match=r"conflict with hv/batch/task1: a\.txt"):
        gather(workspace)


def test_commits_on_two_branches(workspace, hub):
    agent(
        workspace.folder,
        """
        echo 1 > one; git add .; git commit -qm one
        git checkout -q -b side origin/main; echo 2 > two; git add .; git commit -qm two
        """,
    )
    with pytest.raises(NotCollected, match="on hv/batch/task1 and on side, and neither contains"):
        gather(workspace)
    kept = [files_at(hub.git, commit) for commit in hub.refs("refs/hv/").values()]
    assert any("one" in files for files in kept) and any("two" in files for files in kept)
    assert REF not in hub.refs()


def test_a_rebase_left_half_way(workspace, hub):
    script = """
        echo mine > a.txt; git commit -qam mine
        git checkout -qb up HEAD~1; echo theirs > a.txt; git commit -qam theirs
        git checkout -q hv/batch/task1; git rebase -q up > /dev/null 2>&1 || true
        test -d .git/rebase-merge; echo half > a.txt
    """
    collected = gather_after(workspace, script)
    assert subjects(hub, collected) == ["mine"]
    assert "a rebase was left unfinished; took the commits from before it" in collected.notes[0]
    assert last_files(hub)["a.txt"] == "half\n"


MERGE = """
    echo mine > a.txt; git commit -qam mine
    git checkout -qb up HEAD~1; echo theirs > a.txt; git commit -qam theirs
    git checkout -q hv/batch/task1; git merge -q up > /dev/null 2>&1 || true
    test -f .git/MERGE_HEAD
"""


def test_a_merge_with_conflicts(workspace, hub):
    with pytest.raises(NotCollected, match=r"conflicts are not resolved: a\.txt"):
        gather_after(workspace, MERGE)
    assert latest(hub, "task1", 1) is not None


@pytest.mark.parametrize("staged", ["", "git add a.txt"])
def test_a_merge_resolved_but_not_committed(workspace, hub, staged):
    collected = gather_after(workspace, f"{MERGE}\n echo both > a.txt; {staged}")
    assert files_at(hub.git, collected.head)["a.txt"] == "both\n"
    assert len(hub.git.text("log", "-1", "--format=%P", collected.head).split()) == 2
    assert collected.notes == ("committed an unfinished merge",)


def test_conflicts_of_a_stash(workspace):
    script = (
        "echo 1 > a.txt; git stash -q; echo 2 > a.txt; git commit -qam 2; git stash pop || true"
    )
    with pytest.raises(NotCollected, match="conflicts are not resolved"):
        gather_after(workspace, script)


@pytest.mark.parametrize("damage", ["rm -rf .git", "rm .git/HEAD"])
def test_without_a_repository(workspace, hub, damage):
    agent(workspace.folder, "echo 1 > one; git add .; git commit -qm one")
    head = agent(workspace.folder, "git rev-parse HEAD").strip()
    take(workspace, "task1", 1, "due", now=1)
    collected = gather_after(workspace, f"echo 2 > two; {damage}")
    assert subjects(hub, collected) == ["Add a feature", "one"]
    assert hub.git.text("rev-parse", f"{collected.head}^") == head
    assert "cannot be read" in collected.notes[0] and head[:12] in collected.notes[0]


def test_an_orphan_branch(workspace, hub):
    script = (
        "git checkout -q --orphan new; git rm -qrf .; echo 1 > one; git add one; git commit -qm one"
    )
    collected = gather_after(workspace, f"{script}; git branch -D hv/batch/task1")
    assert files_at(hub.git, collected.head) == {"one": "1\n"}
    assert collected.base == workspace.base and "nothing in common" in collected.notes[0]


def test_a_huge_commit(workspace, hub):
    with open(os.path.join(workspace.folder, "huge.bin"), "wb") as file:
        file.write(random.Random(1).randbytes(20_000))
    agent(workspace.folder, "git add .; git commit -qm huge")
    with pytest.raises(NotCollected, match=r"19\.\d kB, more than 4\.88 kB; only in the workspace"):
        gather(workspace, Limits(total=5000, free=0))
    assert REF not in hub.refs()


def test_large_files_in_commits_stay_and_others_are_named(workspace, hub):
    """The size limit applies only to uncommitted files."""
    limits = Limits(file=1000, free=0)
    for name in ("committed", "left"):
        with open(os.path.join(workspace.folder, name), "wb") as file:
            file.write(bytes(2000))
    agent(workspace.folder, "git add committed; git commit -qm big; echo x > a.txt")
    collected = gather(workspace, limits)
    assert collected.changed_paths == ("a.txt", "committed")
    assert [each.path for each in collected.left_out] == ["left"]


def test_merged_newer_work_of_the_user(workspace, hub, checkout):
    """The base moves with what the agent merged; only its own changes count."""
    newer = hub.commit(
        hub.tree_of(hub.resolve("stash@{0}")), [workspace.base], "newer"
    )  # changes a.txt
    hub.update_ref("refs/heads/main", newer)
    script = "echo 1 > one; git add .; git commit -qm one; git fetch -q; git merge -q origin/main"
    agent(workspace.folder, script)
    collected = collect(workspace, "task1", 1, "x", {}, now=1, known=(newer,))
    assert collected.base == newer and collected.changed_paths == ("one",)
    assert gather(workspace).changed_paths == ("a.txt", "one")


def test_repositories_inside_are_not_merged(workspace, hub):
    script = "git init -q inner; echo x > inner/x; echo 1 > one"
    collected = gather_after(workspace, script)
    assert collected.changed_paths == ("one",)
    assert [str(each) for each in collected.left_out] == ["inner/ (a repository of its own)"]
    assert "inner/x" in last_files(hub)


def test_sparse(tmp_path):
    init(tmp_path / "big")
    base = commit_files(tmp_path / "big", {"a/1": "1\n", "b/2": "2\n"})
    newer = commit_files(tmp_path / "big", {"b/2": "newer\n"})
    hub = open_hub(str(tmp_path / "data"), repository_at(tmp_path / "big"))
    folder = str(tmp_path / "data/git/work/t")
    workspace = create(hub, folder, "hv/b/t", base, sparse=("a",))
    collected = gather_after(workspace, f"git merge -q {newer}; echo changed > a/1")
    assert files_at(hub.git, collected.head) == {"a/1": "changed\n", "b/2": "newer\n"}
    assert not os.path.exists(os.path.join(folder, "b"))


def test_a_broken_configuration_does_no_harm(workspace, hub):
    agent(workspace.folder, "echo 1 > one; git add .; git commit -qm one")
    collected = gather_after(workspace, "echo 2 > two; echo '[broken' > .git/config")
    assert subjects(hub, collected) == ["Add a feature", "one"] and not collected.notes


def test_a_large_file_is_named_however_small_its_commit_is(workspace):
    script = "head -c 300000 /dev/zero > big; echo 1 > 'a file'; rm a.txt; git add -A"
    limits = Limits(total=200_000)
    agent(workspace.folder, f"{script}; git commit -qm big")
    collected = gather(workspace, limits)
    assert set(collected.changed_paths) == {"a file", "a.txt", "big"}
    assert collected.large == ("big (293 kB)",)
    assert (
        problem_of(cast(Task, SimpleNamespace(data={})), collected)
        == "very large files: big (293 kB)"
    )


def test_a_stash_beside_other_work_is_mentioned(workspace):
    script = "echo 1 > one; git add .; git commit -qm one; echo 2 > two; git stash -qu"
    collected = gather_after(workspace, script)
    assert collected.changed_paths == ("one",) and not collected.left_out
    [note] = collected.notes
    assert note == "not in its commits: work that was put away with git stash; it is kept"
