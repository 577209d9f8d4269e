"""Landing in the user's repository: nothing changes except what was requested."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from hypervisor.core.errors import InvalidInput
from hypervisor.git.landing import (
    Destination,
    Landed,
    Mode,
    Moved,
    Refused,
    Unreachable,
    find_tip,
    holds,
    land,
)
from hypervisor.selftest.repositories import Repo, bare_clone

BRANCH = "hv/nightly"


@pytest.fixture
def repo(tmp_path):
    repo = Repo(tmp_path / "the repository")
    repo.commit({"f": "1\n", "g": "1\n", ".gitignore": "*.tmp\n"}, "first")
    return repo


@pytest.fixture
def hub(repo, tmp_path):
    return bare_clone(repo, tmp_path / "hub.git")


@pytest.fixture
def made(repo, hub, tmp_path):
    """A commit that only the hub has."""
    other = Repo(tmp_path / "workspace")
    other.git.run("fetch", "--quiet", hub.folder, "main")
    other.git.run("reset", "--quiet", "--hard", "FETCH_HEAD")
    commit = other.commit({"f": "2\n", "new": "x\n"}, "made")
    hub.run("fetch", "--quiet", str(other.folder), "main:refs/hv/tasks/T/1")
    return commit


@pytest.fixture
def in_branch(repo, hub):
    return Destination(hub, str(repo.folder), "lane", BRANCH)


@pytest.fixture
def locally(repo, hub):
    return Destination(hub, str(repo.folder), "lane", "main", "local", branch=BRANCH)


def everything(repo):
    """A digest of each file of the repository, except objects and our own branches."""
    found = {}
    for folder, _, names in os.walk(repo.folder):
        for name in names:
            path = Path(folder, name)
            key = str(path.relative_to(repo.folder))
            if not key.startswith(
                (".git/objects/", ".git/refs/heads/hv/", ".git/logs/refs/heads/hv/")
            ):
                found[key] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def make_dirty(repo):
    """Staged, changed, untracked, ignored and stashed work of the user."""
    (repo.folder / "g").write_text("stashed\n")
    repo.git.run("stash")
    (repo.folder / "g").write_text("staged\n")
    repo.git.run("add", "g")
    (repo.folder / "g").write_text("changed\n")
    (repo.folder / "untracked").write_text("mine\n")
    (repo.folder / "x.tmp").write_text("ignored\n")


def test_a_branch_is_made_and_nothing_else_changes(repo, in_branch, made):
    make_dirty(repo)
    before = everything(repo)
    assert find_tip(in_branch) is None
    assert land(in_branch, None, made) == Landed(made, f"branch {BRANCH}")
    assert everything(repo) == before
    assert repo.tip(BRANCH) == made
    assert find_tip(in_branch) == made
    assert holds(in_branch, made)
    assert repo.git.text("fsck", "--connectivity-only") == ""


def test_landing_again_changes_nothing(repo, in_branch, made):
    land(in_branch, None, made)
    assert isinstance(land(in_branch, None, made), Landed)


def test_a_branch_that_has_moved_is_left_alone(repo, in_branch, made):
    base = repo.tip()
    repo.git.run("branch", BRANCH, base)
    assert land(in_branch, None, made) == Moved(base)
    assert repo.tip(BRANCH) == base
    assert isinstance(land(in_branch, base, made), Landed)
    theirs = repo.branch(BRANCH, BRANCH, {"theirs": "1\n"})
    assert land(in_branch, made, base) == Moved(theirs)
    assert find_tip(in_branch) == theirs
    assert in_branch.hub.commit_of(theirs) == theirs  # it can be stacked upon


@pytest.mark.parametrize("how", ["here", "worktree", "rebase"])
def test_a_branch_that_is_checked_out_is_refused(repo, in_branch, made, how, tmp_path):
    base = repo.tip()
    repo.git.run("branch", BRANCH, base)
    folder = repo.folder
    if how == "here":
        repo.git.run("checkout", "--quiet", BRANCH)
    elif how == "worktree":
        folder = tmp_path / "a worktree"
        repo.git.run("worktree", "add", "--quiet", str(folder), BRANCH)
    else:
        repo.git.run("checkout", "--quiet", BRANCH)
        mine = repo.commit({"f": "mine\n"})
        other = repo.branch("other", base, {"f": "other\n"})
        repo.git.run("rebase", other, ok=(1,))
        base = mine
    refused = land(in_branch, base, made)
    assert isinstance(refused, Refused)
    assert refused.reason.startswith(f"{BRANCH} is checked out in {folder}")
    assert repo.tip(BRANCH) == base


def test_a_branch_named_hv_is_in_the_way(repo, in_branch, made):
    repo.git.run("branch", "hv")
    refused = land(in_branch, None, made)
    assert isinstance(refused, Refused)
    assert "'refs/heads/hv' exists" in refused.reason


def test_a_symbolic_ref_does_not_lead_to_the_users_branch(repo, in_branch, made):
    base = repo.tip()
    repo.git.run("symbolic-ref", f"refs/heads/{BRANCH}", "refs/heads/main")
    refused = land(in_branch, base, made)
    assert isinstance(refused, Refused)
    assert "symbolic ref" in refused.reason
    assert repo.tip() == base


def test_only_branches_of_ours(repo, hub):
    cases: list[tuple[Mode, str]] = [("branch", ""), ("local", "topic"), ("pr", "main")]
    for mode, branch in cases:
        with pytest.raises(InvalidInput, match="does not start with hv/"):
            Destination(hub, str(repo.folder), "lane", "main", mode, branch=branch)


def test_a_clean_checkout_is_moved_forward(repo, locally, made):
    (repo.folder / "untracked").write_text("mine\n")
    (repo.folder / "x.tmp").write_text("ignored\n")
    base = repo.tip()
    assert land(locally, base, made) == Landed(made, "branch main")
    assert repo.git.text("rev-parse", "--abbrev-ref", "HEAD") == "main"
    assert repo.tip() == made
    assert (repo.folder / "new").read_text() == "x\n"
    assert repo.git.text("status", "--porcelain") == "?? untracked"
    assert repo.tip(BRANCH) is None
    assert isinstance(land(locally, base, made), Landed)


def refused_locally(repo, locally, made):
    before, base = everything(repo), repo.tip()
    refused = land(locally, base, made)
    assert isinstance(refused, Refused)
    assert repo.tip() == base
    assert everything(repo) == before
    assert repo.tip(BRANCH) == made
    assert f"git merge --ff-only {BRANCH}" in refused.reason
    return refused.reason


def test_a_dirty_checkout_is_left_alone_and_the_commits_are_on_a_branch(repo, locally, made):
    make_dirty(repo)
    reason = refused_locally(repo, locally, made)
    assert f"{repo.folder} has uncommitted changes (g)" in reason


@pytest.mark.parametrize("name", ["new", "x.tmp"])
def test_files_that_git_does_not_know_are_not_overwritten(repo, locally, hub, made, name, tmp_path):
    other = Repo(tmp_path / "another")
    other.git.run("fetch", "--quiet", hub.folder, made)
    other.git.run("reset", "--quiet", "--hard", made)
    (other.folder / "x.tmp").write_text("theirs\n")
    other.git.run("add", "--force", "x.tmp")
    made = other.commit({})
    hub.run("fetch", "--quiet", str(other.folder), "main:refs/hv/tasks/T/2")
    (repo.folder / name).write_text("mine\n")
    assert f"would be overwritten ({name})" in refused_locally(repo, locally, made)
    assert (repo.folder / name).read_text() == "mine\n"


def test_a_target_that_is_not_checked_out(repo, locally, made):
    repo.git.run("checkout", "--quiet", "-b", "topic")
    assert "main is not checked out" in refused_locally(repo, locally, made)


def test_a_merge_in_progress(repo, locally, made):
    other = repo.branch("other", "main", {"f": "other\n"})
    base = repo.commit({"f": "mine\n"})
    repo.git.run("merge", other, ok=(1,))
    refused = land(locally, base, made)
    assert isinstance(refused, Refused)
    assert "a merge is in progress" in refused.reason


def test_a_target_that_has_moved_locally(repo, locally, made):
    base = repo.tip()
    theirs = repo.commit({"theirs": "1\n"})
    assert land(locally, base, made) == Moved(theirs)
    assert repo.tip() == theirs


def test_a_fast_forward_that_was_killed_half_way_is_finished(repo, locally, made):
    base = repo.tip()
    repo.git.run("fetch", "--quiet", locally.hub.folder, made)
    repo.git.run("read-tree", "-m", "-u", base, made)  # files and index, but not the branch
    assert isinstance(land(locally, base, made), Landed)
    assert repo.git.text("status", "--porcelain") == ""


def test_the_branch_left_behind_never_loses_the_users_commits(repo, locally, made):
    theirs = repo.branch(BRANCH, "main", {"theirs": "1\n"})
    make_dirty(repo)
    refused = land(locally, repo.tip(), made)
    assert isinstance(refused, Refused)
    assert f"The commits are in {locally.hub.folder}: {made}" in refused.reason
    assert repo.tip(BRANCH) == theirs


def test_a_linked_worktree_that_has_the_target(repo, hub, made, tmp_path):
    linked = tmp_path / "linked"
    repo.git.run("checkout", "--quiet", "-b", "topic")
    repo.git.run("worktree", "add", "--quiet", str(linked), "main")
    where = Destination(hub, str(repo.folder), "lane", "main", "local", branch=BRANCH)
    assert land(where, repo.tip(), made) == Landed(made, "branch main")
    assert (linked / "new").exists()
    assert not (repo.folder / "new").exists()


def test_a_lock_left_by_a_killed_git_is_removed_once_it_is_old(repo, in_branch, made):
    lock = repo.folder / ".git/refs/heads" / f"{BRANCH}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert land(in_branch, None, made) == Unreachable(f"{BRANCH} is locked")
    os.utime(lock, (1, 1))
    assert isinstance(land(in_branch, None, made), Landed)
