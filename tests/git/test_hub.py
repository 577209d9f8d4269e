"""The hub: a reliable copy of the user's repository, which is never touched."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hypervisor.core.errors import GitFailed, InvalidInput
from hypervisor.git.command import Git
from hypervisor.git.hub import clear_stale_locks, hub_path, open_hub
from tests.git.fingerprint import fingerprint
from tests.git.support import agent, commit_files, files_at, init, repository_at


def test_has_the_users_branches_and_tags_and_hard_links(hub, checkout):
    refs = hub.refs()
    assert set(refs) == {"refs/heads/main", "refs/heads/other", "refs/tags/v1"}
    user = Git(str(checkout))
    assert refs["refs/heads/main"] == user.text("rev-parse", "main")
    name = refs["refs/heads/main"]
    loose = os.path.join(hub.path, "objects", name[:2], name[2:])
    assert os.stat(loose).st_nlink == 2


def test_follows_the_user(hub, data, repository, checkout):
    git = Git(str(checkout))
    git.run("branch", "third")
    git.run("branch", "-D", "other")
    git.run("commit", "--quiet", "--amend", "--all", "--message", "rewritten")
    assert set(open_hub(str(data), repository).refs("refs/heads")) == {
        "refs/heads/main",
        "refs/heads/third",
    }
    assert hub.resolve("main") == git.text("rev-parse", "main")


def test_leaves_the_users_repository_alone(data, repository, checkout):
    before = fingerprint(checkout)
    hub = open_hub(str(data), repository)
    hub.resolve("HEAD")
    hub.include_dirty(repository)
    open_hub(str(data), repository)
    assert fingerprint(checkout) == before


def test_our_refs_survive_a_refresh(hub, data, repository):
    commit = hub.resolve("HEAD")
    hub.keep_base(commit)
    open_hub(str(data), repository)
    assert hub.refs("refs/hv") == {f"refs/hv/bases/{commit}": commit}


def test_resolves_what_is_on_no_branch(hub, checkout):
    git = Git(str(checkout))
    git.run("checkout", "--quiet", "--detach")
    detached = commit_files(checkout, {"c.txt": "c\n"})
    assert hub.resolve("HEAD") == detached
    assert hub.resolve("stash@{0}") == git.text("rev-parse", "refs/stash")
    assert files_at(hub.git, hub.resolve())["c.txt"] == "c\n"


@pytest.mark.parametrize("base", ["nonsense", "--all", "", "main..other"])
def test_a_base_that_does_not_exist(hub, base):
    with pytest.raises(InvalidInput, match="has no commit"):
        hub.resolve(base)


def test_the_users_uncommitted_changes_as_the_base(hub, repository, checkout):
    base = hub.include_dirty(repository)
    files = files_at(hub.git, base.commit)
    assert files["folder/b.txt"] == "dirty\n" and files["new file.txt"] == "new\n"
    assert files["a.txt"] == "a\n" and not any(".hypervisor" in name for name in files)
    assert hub.git.text("rev-parse", f"{base.commit}^") == hub.resolve()


def test_a_clean_checkout_is_its_commit(hub, repository, checkout):
    commit = commit_files(checkout, {})
    assert hub.include_dirty(repository).commit == commit


def test_uncommitted_changes_without_any_commit(tmp_path):
    init(tmp_path / "empty")
    (tmp_path / "empty" / "first.txt").write_text("first\n")
    repository = repository_at(tmp_path / "empty")
    hub = open_hub(str(tmp_path / "data"), repository)
    commit = hub.include_dirty(repository).commit
    assert files_at(hub.git, commit) == {"first.txt": "first\n"}


def test_large_files_of_the_user_are_named(hub, repository, checkout):
    with open(checkout / "huge.bin", "wb") as file:
        file.truncate(11 << 20)
    base = hub.include_dirty(repository)
    assert [str(each) for each in base.left_out] == ["huge.bin (11 MB, more than 10 MB)"]


def test_ignored_by_the_users_own_configuration(hub, data, repository, checkout, home):
    (checkout / ".git" / "info").mkdir(exist_ok=True)
    (checkout / ".git" / "info" / "exclude").write_text("*.private\n")
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "ignore").write_text("*.swp")
    for name in ("x.private", "x.swp", "x.log"):
        (checkout / name).touch()
    hub = open_hub(str(data), repository)
    names = files_at(hub.git, hub.include_dirty(repository).commit)
    assert not {"x.private", "x.swp", "x.log"} & set(names)


def test_a_pack_of_its_own_when_the_user_borrows_objects(tmp_path, checkout):
    borrower = tmp_path / "borrower"
    Git(str(tmp_path)).run("clone", "--quiet", "--shared", str(checkout), str(borrower))
    hub = open_hub(str(tmp_path / "data"), repository_at(borrower))
    shutil.rmtree(checkout)
    assert files_at(hub.git, "refs/heads/main")["a.txt"] == "a\n"


def test_nothing_is_lost_when_the_user_collects_garbage(hub, checkout):
    commit = hub.resolve("stash@{0}")
    agent(
        str(checkout),
        "git stash drop -q; git reflog expire --expire=now --all; git gc -q --prune=now",
    )
    assert files_at(hub.git, commit)["a.txt"] == "stashed\n"
    hub.git.run("fsck", "--full", "--strict")


def test_opened_by_many_at_once(data, repository):
    with ThreadPoolExecutor(8) as pool:
        hubs = list(pool.map(lambda _: open_hub(str(data), repository), range(8)))
    assert len({hub.path for hub in hubs}) == 1
    assert sorted(os.listdir(data / "git")) == sorted(
        [os.path.basename(hubs[0].path), os.path.basename(hubs[0].path) + ".lock"]
    )


def test_leftovers_of_a_killed_process_go(data, repository):
    unfinished = hub_path(str(data), repository) + ".new-0123"
    os.makedirs(unfinished)
    open_hub(str(data), repository)
    assert not os.path.exists(unfinished)


def test_locks_of_a_killed_git(hub):
    commit = hub.resolve()
    path = os.path.join(hub.path, "refs", "hv", "x")
    os.makedirs(os.path.dirname(path))
    with open(f"{path}.lock", "w"):
        pass
    clear_stale_locks(hub.path)
    assert os.path.exists(f"{path}.lock")  # it may be in use
    long_ago = time.time() - 3600
    os.utime(f"{path}.lock", (long_ago, long_ago))
    hub.update_ref("refs/hv/x", commit)
    assert hub.refs("refs/hv") == {"refs/hv/x": commit}


def test_a_ref_moves_only_from_where_it_was_expected(hub):
    commit = hub.resolve()
    stash = hub.resolve("stash@{0}")
    hub.update_ref("refs/hv/x", commit, old="")
    with pytest.raises(GitFailed):
        hub.update_ref("refs/hv/x", stash, old="")
    with pytest.raises(GitFailed):
        hub.update_ref("refs/hv/x", stash, old=stash)
    hub.update_ref("refs/hv/x", stash, old=commit)
    assert hub.refs("refs/hv/x") == {"refs/hv/x": stash}


def test_nobody_pushes_into_it(hub, tmp_path):
    clone = tmp_path / "clone"
    Git(str(tmp_path)).run("clone", "--quiet", hub.path, str(clone))
    commit_files(clone, {"x": "x"})
    out = agent(str(clone), "git push origin HEAD:refs/heads/main 2>&1 || true")
    assert "Pushing is not possible here" in out
    assert "x" not in files_at(hub.git, "refs/heads/main")


def test_what_is_written_is_synced(hub):
    assert hub.git.text("config", "core.fsync") == "committed"
