"""Snapshots: everything that a workspace holds, whatever the agent did to its repository."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from hypervisor.core.errors import WorkspaceError
from hypervisor.git.command import Git
from hypervisor.git.hub import open_hub
from hypervisor.git.snapshot import Snapshot, latest, snapshots, take, thin_out
from hypervisor.git.work_tree import LeftOut, Limits
from hypervisor.git.workspace import create
from tests.git.support import agent, commit_files, files_at, init, repository_at, write_files

SMALL = Limits(file=1000, total=5000, free=0)


def snap(workspace, reason="due", now=1, limits=None) -> Snapshot:
    return take(workspace, "task1", 1, reason, now=now, limits=limits)


def test_has_changed_new_staged_and_deleted_files(workspace, hub, tmp_path):
    script = """
        echo changed > folder/b.txt; echo new > 'new
line'; echo staged > staged.txt; git add staged.txt
        rm a.txt; echo ignored > x.log; ln -s folder link; chmod +x .gitignore
    """
    agent(workspace.folder, script)
    before = agent(workspace.folder, "cat .git/index | sha256sum")
    snapshot = snap(workspace, "before a stop", now=1234)
    assert agent(workspace.folder, "cat .git/index | sha256sum") == before
    assert files_at(hub.git, snapshot.commit) == {
        ".gitignore": "*.log\n",
        "folder/b.txt": "changed\n",
        "link": "folder",
        "new\nline": "new\n",
        "staged.txt": "staged\n",
    }
    assert snapshot.ref == "refs/hv/snapshots/task1/1/1"
    assert hub.refs("refs/hv/snapshots") == {snapshot.ref: snapshot.commit}
    assert snapshots(hub, "task1") == [snapshot] and snapshot.at == 1234
    assert hub.git.text("ls-tree", snapshot.commit, ".gitignore").startswith("100755")


def test_without_a_change_there_is_no_new_one(workspace, hub):
    first = snap(workspace)
    agent(workspace.folder, "touch a.txt; echo ignored > x.log")
    again = snap(workspace, now=2)
    assert not again.is_new and again.commit == first.commit
    agent(workspace.folder, "echo more >> a.txt")
    third = snap(workspace, now=3)
    assert third.is_new and third.number == 2
    assert latest(hub, "task1", 1) == third
    assert [each.number for each in snapshots(hub, "task1")] == [1, 2]


def test_attempts_are_apart(workspace, hub):
    take(workspace, "task1", 1, "due", now=1)
    take(workspace, "task1", 10, "due", now=2)
    take(workspace, "task1", 2, "due", now=3)
    assert [each.at for each in snapshots(hub, "task1")] == [1, 3, 2]
    assert latest(hub, "task1", 3) is None


def test_commits_are_in_it(workspace, hub):
    agent(workspace.folder, "echo x > a.txt; git commit -qam one; echo y > a.txt")
    head = agent(workspace.folder, "git rev-parse HEAD").strip()
    snapshot = snap(workspace)
    assert snapshot.head == head == hub.git.text("rev-parse", f"{snapshot.commit}^")
    agent(workspace.folder, "git commit -qam two")
    assert snap(workspace).is_new  # the same files, another commit


def test_other_branches_and_the_stash_are_kept(workspace, hub):
    agent(
        workspace.folder,
        """
        git checkout -qb side; echo side > side.txt; git add .; git commit -qm side
        git checkout -q hv/batch/task1; echo stashed > a.txt; git stash -q
        """,
    )
    stash, side = agent(workspace.folder, "git rev-parse refs/stash side").split()
    snap(workspace)
    assert set(hub.refs("refs/hv/kept/task1/1").values()) == {stash, side}
    agent(workspace.folder, "rm -rf .git")
    assert files_at(hub.git, stash)["a.txt"] == "stashed\n"
    assert files_at(hub.git, side)["side.txt"] == "side\n"


@pytest.mark.parametrize(
    "damage",
    [
        "rm -rf .git",
        "rm -rf .git; echo gitdir: /nonexistent > .git",
        "rm -rf .git; ln -s /nonexistent .git",
        "rm .git/HEAD",
        "echo '[broken' > .git/config",
        "rm .git/index; echo garbage > .git/index",
        "rm -rf .git/objects",
        "git init -q --separate-git-dir ../elsewhere",
        "touch .git/index.lock .git/HEAD.lock",
    ],
)
def test_whatever_happened_to_git(workspace, hub, damage):
    agent(workspace.folder, "echo one > a.txt; git commit -qam one")
    first = snap(workspace)
    agent(workspace.folder, f"echo two > folder/b.txt; echo new > new.txt; {damage}")
    second = snap(workspace, now=2)
    files = files_at(hub.git, second.commit)
    assert (files["a.txt"], files["folder/b.txt"], files["new.txt"]) == ("one\n", "two\n", "new\n")
    assert second.head == first.head  # the last commit that could be read


def test_says_that_commits_could_not_be_read(workspace):
    agent(workspace.folder, "rm -rf .git")
    [left_out] = snap(workspace).left_out
    assert "commits since the last snapshot" in str(left_out) and ".git is gone" in str(left_out)


@pytest.mark.parametrize(
    "script",
    [
        "git checkout -q --detach; echo x > a.txt; git commit -qam x",
        "git checkout -q --orphan fresh",
        "git checkout -q -b side; git commit -q --allow-empty -m s; git checkout -q main",
        "git reset -q --hard; git gc -q --prune=now",
        "git worktree add -q ../linked -b linked; git pack-refs --all",
    ],
)
def test_wherever_head_is(workspace, hub, script):
    agent(workspace.folder, f"{script}; echo dirty > folder/b.txt")
    assert files_at(hub.git, snap(workspace).commit)["folder/b.txt"] == "dirty\n"


def test_a_rebase_left_half_way(workspace, hub):
    agent(
        workspace.folder,
        """
        echo mine > a.txt; git commit -qam mine
        git checkout -qb up HEAD~1; echo theirs > a.txt; git commit -qam theirs
        git checkout -q hv/batch/task1; git rebase -q up > /dev/null 2>&1 || true
        test -d .git/rebase-merge
        """,
    )
    snapshot = snap(workspace)
    assert "<<<<<<<" in files_at(hub.git, snapshot.commit)["a.txt"]
    kept = {files_at(hub.git, commit)["a.txt"] for commit in hub.refs("refs/hv/kept").values()}
    assert "mine\n" in kept


def test_large_files_are_left_out_and_named(workspace, hub):
    write_files(
        Path(workspace.folder),
        {"big": b"x" * 1001, "fits": b"x" * 1000, "folder/b.txt": b"y" * 2000},
    )
    snapshot = snap(workspace, limits=SMALL)
    files = files_at(hub.git, snapshot.commit)
    assert "big" not in files and files["fits"] == "x" * 1000 and files["folder/b.txt"] == "b\n"
    assert {each.path for each in snapshot.left_out} == {"big", "folder/b.txt"}
    [stored] = snapshots(hub, "task1")
    assert stored.left_out == snapshot.left_out


def test_all_files_together_are_bounded(workspace, hub):
    for number in range(9):
        with open(os.path.join(workspace.folder, f"{number}.txt"), "wb") as file:
            file.write(bytes(900))
    snapshot = snap(workspace, limits=SMALL)
    assert [each.path for each in snapshot.left_out] == [f"{n}.txt" for n in (5, 6, 7, 8)]
    assert "in all" in snapshot.left_out[0].why


def test_a_commit_of_a_huge_file_stays_in_the_workspace(workspace, hub):
    agent(workspace.folder, "echo small > a.txt; git commit -qam small")
    small = snap(workspace, limits=SMALL)
    with open(os.path.join(workspace.folder, "huge.bin"), "wb") as file:
        file.write(random.Random(1).randbytes(20_000))
    agent(workspace.folder, "git add .; git commit -qm huge; echo more > folder/b.txt")
    head = agent(workspace.folder, "git rev-parse HEAD").strip()
    snapshot = snap(workspace, limits=SMALL)
    assert snapshot.head == small.head
    assert files_at(hub.git, snapshot.commit)["folder/b.txt"] == "more\n"
    commit, rest = snapshot.left_out
    assert commit.path == f"commit {head[:12]}" and "only in the workspace" in commit.why
    assert rest.path == "huge.bin"
    assert hub.git.commit_of(head) is None


def test_no_space_left(workspace, hub):
    with pytest.raises(WorkspaceError, match="free on the disk"):
        snap(workspace, limits=Limits(free=1 << 60))
    assert hub.refs("refs/hv/snapshots") == {}


def test_a_workspace_that_is_gone(workspace):
    os.rename(workspace.folder, workspace.folder + ".away")
    with pytest.raises(WorkspaceError, match="is gone"):
        snap(workspace)


def test_files_that_cannot_be_read_are_named(workspace, hub, monkeypatch):
    agent(
        workspace.folder, "echo x > readable; echo x > folder/unreadable; chmod 0 folder/unreadable"
    )
    if os.access(os.path.join(workspace.folder, "folder/unreadable"), os.R_OK):
        pytest.skip("root reads everything")
    snapshot = snap(workspace)
    assert snapshot.left_out == (LeftOut("folder/unreadable", "cannot be read"),)
    assert "readable" in files_at(hub.git, snapshot.commit)


def test_files_that_turn_into_folders_and_links(workspace, hub):
    script = "rm a.txt; mkdir a.txt; echo in > a.txt/in; mv folder real; ln -s real folder"
    agent(workspace.folder, script)
    files = files_at(hub.git, snap(workspace).commit)
    assert (
        files["a.txt/in"] == "in\n" and files["folder"] == "real" and files["real/b.txt"] == "b\n"
    )
    agent(workspace.folder, "rm -r a.txt folder; mv real folder; echo a > a.txt")
    assert files_at(hub.git, snap(workspace).commit)["folder/b.txt"] == "b\n"


def test_ignored_files_that_the_agent_tracks_or_untracks(workspace, hub):
    agent(workspace.folder, "echo kept > kept.log; git add -f kept.log; echo no > other.log")
    assert "kept.log" in files_at(hub.git, snap(workspace).commit)
    agent(workspace.folder, "git commit -qm log; git rm -q --cached kept.log")
    assert "kept.log" not in files_at(hub.git, snap(workspace).commit)
    agent(workspace.folder, "git rm -q --cached a.txt; echo a.txt >> .gitignore")
    assert "a.txt" not in files_at(hub.git, snap(workspace).commit)


@pytest.mark.parametrize(
    "commits", ["", "git add .; git -c user.name=x -c user.email=x@y commit -qm x;"]
)
def test_a_repository_inside(workspace, hub, commits):
    agent(workspace.folder, f"mkdir n; cd n; git init -q; echo x > x.txt; {commits} echo y > y.txt")
    files = files_at(hub.git, snap(workspace).commit)
    assert (files["n/x.txt"], files["n/y.txt"]) == ("x\n", "y\n")
    agent(workspace.folder, "echo z > n/x.txt")
    assert files_at(hub.git, snap(workspace).commit)["n/x.txt"] == "z\n"


def test_sparse_files_are_not_deleted_and_new_ones_are_seen(tmp_path):
    init(tmp_path / "big")
    commit_files(tmp_path / "big", {"a/1": "1\n", "b/2": "2\n", "c/3": "3\n", "top": "t\n"})
    hub = open_hub(str(tmp_path / "data"), repository_at(tmp_path / "big"))
    folder = str(tmp_path / "data/git/work/t")
    workspace = create(hub, folder, "hv/b/t", hub.resolve(), sparse=("a",))
    assert not snap(workspace).left_out
    assert snap(workspace).tree == hub.tree_of(workspace.base)
    agent(folder, "mkdir b c; echo new > b/new; echo other > c/3; echo changed > a/1")
    files = files_at(hub.git, snap(workspace).commit)
    assert files == {
        "a/1": "changed\n",
        "b/2": "2\n",
        "b/new": "new\n",
        "c/3": "other\n",
        "top": "t\n",
    }
    agent(folder, "git checkout -q -f; git clean -qfd; git sparse-checkout set b")
    assert snap(workspace).tree == hub.tree_of(workspace.base)


def test_nothing_that_the_agent_configured_is_run(workspace, tmp_path):
    ran = tmp_path / "ran"
    agent(
        workspace.folder,
        f"""
        for key in core.fsmonitor core.alternateRefsCommand core.sshCommand core.pager \
            filter.x.clean filter.x.smudge filter.x.process diff.external gpg.program \
            uploadpack.packObjectsHook core.editor remote.evil.uploadpack; do
            git config "$key" "touch '{ran}'; false"
        done
        git config remote.evil.url ssh://nowhere/x
        git config remote.evil.promisor true
        git config extensions.partialClone evil
        git config core.hooksPath hooks; mkdir hooks
        printf '#!/bin/sh\\ntouch {ran}\\n' > hooks/reference-transaction; chmod +x hooks/*
        rm -f '{ran}'
        printf '* filter=x diff=x\\n' > .gitattributes; echo x > a.txt
        """,
    )
    ran.unlink(missing_ok=True)
    with open(os.path.join(workspace.git_dir, "refs/heads/missing"), "w") as file:
        file.write("1" * 40 + "\n")
    snap(workspace)
    assert not ran.exists()


def test_line_endings_are_the_users(tmp_path):
    init(tmp_path / "dos")
    Git(str(tmp_path / "dos")).run("config", "core.autocrlf", "true")
    commit_files(tmp_path / "dos", {"a.txt": "one\r\ntwo\r\n", "b.bat": "x\n"})
    hub = open_hub(str(tmp_path / "data"), repository_at(tmp_path / "dos"))
    workspace = create(hub, str(tmp_path / "data/git/work/t"), "hv/b/t", hub.resolve())
    with open(os.path.join(workspace.folder, "a.txt"), "rb") as file:
        assert file.read() == b"one\r\ntwo\r\n"
    os.utime(os.path.join(workspace.folder, "a.txt"))
    assert snap(workspace).tree == hub.tree_of(workspace.base)


def test_many_snapshots_are_thinned_out_and_no_commit_is_lost(workspace, hub):
    for number in range(12):
        agent(workspace.folder, f"echo {number} > n; git add n; git commit -qm {number}")
        if number == 5:
            lost = agent(workspace.folder, "git rev-parse HEAD").strip()
        take(workspace, "task1", 1, "due", now=number * 1000)
        if number == 5:
            agent(workspace.folder, "git reset -q --hard HEAD~2")
    thin_out(hub, "task1", 1, 5)
    kept = snapshots(hub, "task1", 1)
    assert len(kept) == 5
    assert (kept[0].at, kept[-1].at) == (0, 11_000)
    newer = [snapshot.at for snapshot in kept if snapshot.at >= 8_000]
    assert len(newer) >= 2  # denser towards the end
    assert hub.git.succeeds("merge-base", "--is-ancestor", lost, lost)
    assert lost in hub.git.text("rev-list", "--glob=refs/hv/*").split()
    assert take(workspace, "task1", 1, "due", now=13_000).number == 12
