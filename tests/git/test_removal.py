"""Removal: everything is in the hub before a workspace is removed; in doubt, it stays."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess

import pytest

from hypervisor.core.errors import GitFailed
from hypervisor.git import removal
from hypervisor.git.hub import Hub
from hypervisor.git.removal import empty_trash, trash, trash_folder, why_kept
from hypervisor.git.work_tree import Limits
from hypervisor.git.workspace import create, open_existing
from tests.git.support import agent, versions

DAY = 86_400_000


def reasons(workspace, limits=None) -> list[str]:
    return why_kept(workspace, "task1", 1, now=1, limits=limits)


def test_goes_to_the_trash_and_later_away(workspace, hub):
    agent(workspace.folder, "echo dirty > a.txt")
    trashed = trash(workspace, "task1", 1, now=5)
    assert trashed.why_kept == () and trashed.path is not None
    assert trashed.path.endswith("git/trash/task1.1-5")
    assert open_existing(workspace.folder) is None
    assert os.path.exists(os.path.join(trashed.path, "a.txt"))
    folder = trash_folder(workspace)
    [entry] = empty_trash(folder, now=5 + DAY - 1, retention=DAY)
    assert entry.why_kept == ("the retention time is not over",) and entry.size > 0
    [entry] = empty_trash(folder, now=5 + DAY, retention=DAY, dry_run=True)
    assert entry.why_kept == () and os.path.exists(trashed.path)
    empty_trash(folder, now=5 + DAY, retention=DAY)
    assert os.listdir(folder) == []
    assert versions(hub.git, "a.txt") == {"a\n", "dirty\n"}


def test_its_place_is_free_again(workspace, hub):
    trash(workspace, "task1", 1, now=5)
    again = create(hub, workspace.folder, "hv/batch/other", workspace.base)
    assert again.branch == "hv/batch/other"


EVERY_WAY_TO_LOSE_A_COMMIT = {
    "stashed": "echo stashed > a.txt; git stash -q; echo x > a.txt; git stash -q",
    "dropped": "echo dropped > a.txt; git stash -q; git stash drop -q",
    "reset": "echo reset > a.txt; git commit -qam x; git reset -q --hard HEAD~1",
    "forgotten": """echo forgotten > a.txt; git commit -qam x; git reset -q --hard HEAD~1
        git reflog expire --expire=now --all""",
    "amended": """echo amended > a.txt; git commit -qam x
        echo y > a.txt; git commit -qa --amend -m y""",
    "packed": "echo packed > a.txt; git commit -qam x; git repack -adq; git reset -q --hard HEAD~1",
    "detached": "git checkout -q --detach; echo detached > a.txt; git commit -qam x",
    "deleted": """git checkout -qb side; echo deleted > a.txt; git commit -qam x
        git checkout -q hv/batch/task1; git branch -qD side""",
    "tagged": """echo tagged > a.txt; git commit -qam x; git tag -a -m t mine
        git reset -q --hard HEAD~1""",
    "rebased": """echo rebased > a.txt; git commit -qam mine
        git checkout -qb up HEAD~1; echo theirs > a.txt; git commit -qam theirs
        git checkout -q hv/batch/task1; git rebase -q up > /dev/null 2>&1 || true""",
    "merging": """git checkout -qb up; echo merging > a.txt; git commit -qam theirs
        git checkout -q hv/batch/task1; git merge -q --no-ff --no-commit up; git branch -qD up""",
    "linked": """git worktree add -q ../linked -b linked; cd ../linked; echo linked > a.txt
        git commit -qam x; cd -; rm -r ../linked; git worktree prune; git branch -qD linked""",
    "checked out": "git checkout -q main; echo 'checked out' > a.txt; git commit -qam x",
}


@pytest.mark.parametrize("what", EVERY_WAY_TO_LOSE_A_COMMIT)
def test_every_commit_is_saved_first(workspace, hub, what):
    agent(workspace.folder, EVERY_WAY_TO_LOSE_A_COMMIT[what])
    assert trash(workspace, "task1", 1, now=1).why_kept == ()
    empty_trash(trash_folder(workspace), now=1, retention=0)
    assert f"{what}\n" in versions(hub.git, "a.txt")
    hub.git.run("fsck", "--strict", "--no-dangling")


def test_nothing_new_needs_no_refs(workspace, hub):
    trash(workspace, "task1", 1, now=1)
    assert list(hub.refs("refs/hv")) == ["refs/hv/snapshots/task1/1/1"]


def test_large_files_keep_it(workspace, hub):
    with open(os.path.join(workspace.folder, "commit.bin"), "wb") as file:
        file.write(bytes(2000))
    limits = Limits(file=1000, free=0)
    trashed = trash(workspace, "task1", 1, now=1, limits=limits)
    assert trashed.path is None and os.path.exists(workspace.folder)
    assert trashed.why_kept == ("not saved: commit.bin (1.95 kB, more than 1000 bytes)",)


def test_a_huge_commit_keeps_it(workspace):
    with open(os.path.join(workspace.folder, "huge.bin"), "wb") as file:
        file.write(random.Random(1).randbytes(20_000))
    agent(workspace.folder, "git add .; git commit -qm huge; git reset -q --hard HEAD~1")
    [reason] = reasons(workspace, Limits(total=5000, free=0))
    assert reason.startswith("not saved: commit ") and "only in the workspace" in reason


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("git worktree add -q ../linked", "linked is a work tree of it"),
        ("git init -q folder/inner", "folder/inner is a repository of its own"),
        ("rm -rf .git/objects", "could not check commits"),
        ("rm -rf .git; echo gitdir: elsewhere > .git", ".git is not a folder any more"),
        (
            "for f in .git/objects/??/*; do chmod u+w $f; echo x > $f; done",
            "could not check",
        ),
    ],
)
def test_any_doubt_keeps_it(workspace, script, reason):
    agent(workspace.folder, f"echo x > a.txt; git commit -qam x; {script}")
    assert reason in " ".join(reasons(workspace))
    assert trash(workspace, "task1", 1, now=1).path is None


def test_a_deleted_repository_does_not_keep_it(workspace, hub):
    agent(workspace.folder, "echo x > a.txt; rm -rf .git")
    assert trash(workspace, "task1", 1, now=1).why_kept == ()
    assert "x\n" in versions(hub.git, "a.txt")


def test_a_running_process_keeps_it(workspace):
    process = subprocess.Popen(["sleep", "60"], cwd=os.path.join(workspace.folder, "folder"))
    try:
        trashed = trash(workspace, "task1", 1, now=1, even_unsaved=True)
        assert trashed.path is None
        assert f"process {process.pid} is running in it" in trashed.why_kept
    finally:
        process.kill()
        process.wait()
    assert trash(workspace, "task1", 1, now=1).path is not None


CHECKS = ("_running", "_save_files", "save_commits", "_linked", "_inside", "_flush")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("error", [GitFailed("git x", "no"), OSError(5, "Input/output error")])
def test_a_check_that_fails_keeps_it(workspace, monkeypatch, check, error):
    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(removal, check, fail)
        assert any(reason.startswith("could not check") for reason in reasons(workspace))
        assert os.path.exists(workspace.folder)
    assert reasons(workspace) == []


def test_to_make_room_it_moves_but_is_not_deleted(workspace, hub):
    agent(workspace.folder, "git init -q inner; cd inner; echo x > precious")
    trashed = trash(workspace, "task1", 1, now=1, even_unsaved=True)
    assert trashed.path is not None and trashed.why_kept
    [entry] = empty_trash(trash_folder(workspace), now=10 * DAY, retention=DAY)
    assert "repository of its own" in entry.why_kept[0]
    assert os.path.exists(os.path.join(trashed.path, "inner", "precious"))


def test_to_make_room_a_check_that_failed_by_chance_is_repeated(workspace, hub, monkeypatch):
    """Its git was killed, for instance."""
    agent(workspace.folder, "echo committed > a.txt; git commit -qam x; git checkout -q HEAD~1")
    save, calls = removal.save_commits, []

    def killed_once(*args):
        calls.append(args)
        if len(calls) == 1:
            raise GitFailed("git rev-list", "killed by signal 9")
        return save(*args)

    monkeypatch.setattr(removal, "save_commits", killed_once)
    trashed = trash(workspace, "task1", 1, now=5, even_unsaved=True)
    assert trashed.path is not None and trashed.why_kept == () and len(calls) == 2
    assert "committed\n" in versions(hub.git, "a.txt")


@pytest.mark.parametrize("loss", ["ref", "hub", "note", "damaged"])
def test_the_trash_stays_if_what_was_saved_is_gone(workspace, hub, loss):
    agent(workspace.folder, "echo dirty > a.txt")
    path = trash(workspace, "task1", 1, now=1).path or ""
    if loss == "ref":
        hub.delete_refs(list(hub.refs("refs/hv/snapshots")))
    elif loss == "hub":
        shutil.rmtree(hub.path)
    elif loss == "note":
        os.unlink(f"{path}.json")
    else:
        with open(f"{path}.json", "w") as file:
            json.dump({"at": 1, "why_kept": [], "hubs": {}}, file)
    [entry] = empty_trash(trash_folder(workspace), now=10 * DAY, retention=DAY)
    assert entry.why_kept and os.path.exists(os.path.join(path, "a.txt"))


def test_read_only_folders_and_links_in_the_trash(workspace, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    script = "mkdir -p x.log/ro; touch x.log/ro/f; chmod 500 x.log/ro; ln -s {} link.log"
    agent(workspace.folder, script.format(tmp_path / "outside"))
    trash(workspace, "task1", 1, now=1)
    empty_trash(trash_folder(workspace), now=1, retention=0)
    assert os.listdir(trash_folder(workspace)) == []
    assert (tmp_path / "outside" / "file").exists()


def test_no_trash_at_all(tmp_path):
    assert empty_trash(str(tmp_path / "none"), now=1, retention=0) == []


def test_others_are_not_affected(workspace, hub, data):
    """Whatever an agent does with git in its workspace, others are not affected."""
    other = create(hub, str(data / "git/work/task2"), "hv/batch/task2", workspace.base)
    agent(
        other.folder, "echo theirs > a.txt; git stash -q; echo more > a.txt; git commit -qam more"
    )
    before = agent(other.folder, "git stash list; git log --oneline; git status --short")
    agent(
        workspace.folder,
        f"""
        git stash list | wc -l | grep -q '^0$'
        echo x > x; git add x; git stash -q; git stash clear; git reset -q --hard
        git worktree add -q -b wt ../wt; git gc -q --prune=now --aggressive; git checkout -q main
        git push -q origin HEAD:main 2>/dev/null || true
        git push -q '{Hub(hub.path).path}' +HEAD~0:refs/heads/main 2>/dev/null || true
        rm -rf .git
        """,
    )
    assert agent(other.folder, "git stash list; git log --oneline; git status --short") == before
    agent(other.folder, "git fsck --strict; git stash pop -q || true")
