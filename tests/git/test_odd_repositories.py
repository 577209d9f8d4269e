"""Every kind of repository works, or says why not before anything starts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hypervisor.core.errors import InvalidInput, NotCollected
from hypervisor.git.collect import Collected, collect
from hypervisor.git.command import Git
from hypervisor.git.hub import open_hub
from hypervisor.git.removal import trash
from hypervisor.git.repository import dirty, discover, preflight
from hypervisor.git.snapshot import latest, take
from hypervisor.git.workspace import Workspace, create
from tests.git.fingerprint import fingerprint
from tests.git.support import agent, commit_files, files_at, init, repository_at


def workspace_of(checkout: Path, base: str = "HEAD") -> Workspace:
    data = checkout.parent / "data"
    hub = open_hub(str(data), repository_at(checkout))
    return create(hub, str(data / "git/work/t"), "hv/b/t", hub.resolve(base))


def round_trip(checkout: Path, script: str = "echo new > new.txt") -> tuple[Workspace, Collected]:
    """A workspace, some work, a snapshot, collected and removed; the user's repository is
    unchanged."""
    before = fingerprint(checkout)
    workspace = workspace_of(checkout)
    assert agent(workspace.folder, "git status --porcelain") == ""
    agent(workspace.folder, script)
    collected = collect(workspace, "t", 1, "Work", {}, now=1)
    assert trash(workspace, "t", 1, now=1).why_kept == ()
    assert fingerprint(checkout) == before
    return workspace, collected


def test_spaces_and_newlines_in_names(tmp_path):
    checkout = tmp_path / 'a "quoted" $HOME; project'
    init(checkout)
    names = ["with space", "new\nline", "tab\t", '"quote"', "-dash", "ünï", "back\\slash", "*?["]
    commit_files(checkout, {f"{name}/{name}": name for name in names})
    script = 'echo more > "new\nline/more"; rm "with space/with space"; echo x > "*?[/new"'
    _, collected = round_trip(checkout, script)
    assert set(collected.changed_paths) == {"new\nline/more", "with space/with space", "*?[/new"}
    assert preflight(repository_at(checkout)).problems == ()


def test_names_that_are_not_text(tmp_path):
    checkout = tmp_path / os.fsdecode(b"caf\xe9")
    init(checkout)
    name = os.fsdecode(b"latin-\xe9.txt")
    commit_files(checkout, {name: "x\n"})
    _, collected = round_trip(checkout, 'for f in latin*; do echo y > "$f"; done')
    assert collected.changed_paths == (name,)


def test_symlinks(tmp_path):
    init(tmp_path / "p")
    (tmp_path / "p" / "link").symlink_to("/etc/passwd")
    (tmp_path / "p" / "broken").symlink_to("nowhere")
    commit_files(tmp_path / "p", {"a": "a\n"})
    _, collected = round_trip(tmp_path / "p", "ln -s a new; rm broken")
    assert collected.changed_paths == ("broken", "new")


def test_line_endings(tmp_path):
    init(tmp_path / "p")
    files = {
        ".gitattributes": "*.txt text eol=crlf\n*.sh eol=lf\n",
        "a.txt": "1\r\n",
        "a.sh": "x\n",
    }
    commit_files(tmp_path / "p", files)
    workspace, collected = round_trip(tmp_path / "p", "printf '1\\r\\n2\\r\\n' > a.txt; touch a.sh")
    assert collected.changed_paths == ("a.txt",)
    assert files_at(workspace.hub.git, collected.head)["a.txt"] == "1\n2\n"


def test_names_that_differ_in_case(tmp_path):
    init(tmp_path / "p")
    commit_files(tmp_path / "p", {"README": "1\n", "readme": "2\n", "Dir/x": "3\n"})
    _, collected = round_trip(tmp_path / "p", "echo changed > readme")
    assert collected.changed_paths == ("readme",)
    notes = preflight(repository_at(tmp_path / "p")).notes
    assert notes == ("names that differ in case only: README, readme",)


def test_a_shallow_clone(tmp_path, checkout):
    commit_files(checkout, {"second": "2\n"})
    source = f"file://{checkout}"
    Git(str(tmp_path)).run("clone", "--quiet", "--depth=1", source, str(tmp_path / "shallow"))
    _, collected = round_trip(tmp_path / "shallow")
    assert collected.changed_paths == ("new.txt",)
    found = preflight(repository_at(tmp_path / "shallow"))
    assert found.problems == () and "shallow clone" in found.notes[0]


def test_an_empty_repository(tmp_path):
    init(tmp_path / "p")
    repository = repository_at(tmp_path / "p")
    [problem] = preflight(repository).problems
    assert problem.endswith("has no commits yet; make a first one (git commit)")
    with pytest.raises(InvalidInput, match="has no commit"):
        open_hub(str(tmp_path / "data"), repository).resolve()
    assert preflight(repository, include_dirty=True).problems == ()


def test_a_base_that_is_not_there(checkout, repository):
    assert preflight(repository, "nonsense").problems[0].endswith("has no commit 'nonsense'")


def test_a_branch_without_commits(checkout, repository):
    Git(str(checkout)).run("checkout", "--quiet", "--orphan", "fresh")
    assert "choose a base with --base" in preflight(repository).problems[0]


def test_a_bare_repository(tmp_path, checkout):
    Git(str(tmp_path)).run("clone", "--quiet", "--bare", str(checkout), str(tmp_path / "p.git"))
    repository = repository_at(tmp_path / "p.git")
    assert repository.bare and repository.name == "p" and dirty(repository) == []
    _, collected = round_trip(tmp_path / "p.git")
    assert collected.changed_paths == ("new.txt",)


def test_a_linked_work_tree(tmp_path, checkout):
    """The commit checked out there is the base; the hub is that of the repository."""
    git = Git(str(checkout))
    git.run("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    commit = commit_files(tmp_path / "linked", {"side.txt": "side\n"})
    linked = repository_at(tmp_path / "linked")
    assert linked.is_linked and not repository_at(checkout).is_linked
    before = fingerprint(checkout), fingerprint(tmp_path / "linked")
    workspace = workspace_of(tmp_path / "linked")
    assert workspace.base == commit
    assert workspace.hub == open_hub(str(tmp_path / "data"), repository_at(checkout))
    (tmp_path / "linked" / "dirty.txt").write_text("dirty\n")
    base = workspace.hub.include_dirty(linked).commit
    (tmp_path / "linked" / "dirty.txt").unlink()
    assert files_at(workspace.hub.git, base)["dirty.txt"] == "dirty\n"
    assert (fingerprint(checkout), fingerprint(tmp_path / "linked")) == before


def test_a_repository_inside_another(tmp_path):
    init(tmp_path / "outer")
    commit_files(tmp_path / "outer", {"outer.txt": "outer\n"})
    init(tmp_path / "outer" / "inner")
    commit_files(tmp_path / "outer" / "inner", {"inner.txt": "inner\n"})
    inner = repository_at(tmp_path / "outer" / "inner")
    assert inner.root == str(tmp_path / "outer" / "inner")
    outer = repository_at(tmp_path / "outer")
    hub = open_hub(str(tmp_path / "data"), outer)
    base = hub.include_dirty(outer)
    assert [str(each) for each in base.left_out] == ["inner/ (a repository of its own)"]
    assert files_at(hub.git, base.commit) == {"outer.txt": "outer\n"}


def test_not_a_repository(tmp_path, monkeypatch):
    assert discover(str(tmp_path)) is None


def test_inside_the_git_folder(checkout):
    with pytest.raises(InvalidInput, match=r"inside a \.git folder"):
        discover(str(checkout / ".git"))


def test_a_sparse_checkout_of_the_user(tmp_path):
    init(tmp_path / "p")
    commit_files(tmp_path / "p", {"a/1": "1\n", "b/2": "2\n"})
    Git(str(tmp_path / "p")).run("sparse-checkout", "set", "a")
    (tmp_path / "p" / "a" / "1").write_text("dirty\n")
    repository = repository_at(tmp_path / "p")
    assert preflight(repository).dirty == ("a/1",)
    before = fingerprint(tmp_path / "p")
    hub = open_hub(str(tmp_path / "data"), repository)
    base = hub.include_dirty(repository).commit
    assert files_at(hub.git, base) == {"a/1": "dirty\n", "b/2": "2\n"}
    assert fingerprint(tmp_path / "p") == before


def test_a_partial_clone(tmp_path, checkout):
    Git(str(checkout)).run("config", "uploadpack.allowFilter", "true")
    words = ("clone", "--quiet", "--filter=blob:none", "--no-checkout", f"file://{checkout}")
    Git(str(tmp_path)).run(*words, str(tmp_path / "partial"))
    [problem] = preflight(repository_at(tmp_path / "partial")).problems
    assert "is a partial clone" in problem and "git fetch --refetch" in problem


def test_lfs_without_git_lfs(tmp_path, monkeypatch):
    init(tmp_path / "p")
    files = {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "sub/x": "x\n"}
    commit_files(tmp_path / "p", files)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    [problem] = preflight(repository_at(tmp_path / "p")).problems
    assert "uses Git LFS, but git-lfs is not installed" in problem


def test_other_filters_are_named(tmp_path):
    init(tmp_path / "p")
    commit_files(tmp_path / "p", {"sub/.gitattributes": "*.key filter=git-crypt\n# filter=no\n"})
    [note] = preflight(repository_at(tmp_path / "p")).notes
    assert note == "filters are not applied in workspaces: git-crypt"


def test_uncommitted_changes_are_named(checkout, repository):
    found = preflight(repository)
    assert sorted(found.dirty) == ["folder/b.txt", "new file.txt"]
    assert any("uncommitted changes are not part" in note for note in found.notes)


@pytest.fixture
def with_submodule(tmp_path):
    init(tmp_path / "library")
    commit_files(tmp_path / "library", {"lib.txt": "lib\n"})
    init(tmp_path / "p")
    commit_files(tmp_path / "p", {"top.txt": "top\n"})
    words = ("submodule", "--quiet", "add", str(tmp_path / "library"), "libs/lib one")
    Git(str(tmp_path / "p")).run("-c", "protocol.file.allow=always", *words)
    commit_files(tmp_path / "p", {})
    return tmp_path / "p"


def test_submodules(with_submodule):
    workspace, collected = round_trip(with_submodule)
    assert workspace.submodules == ("libs/lib one",)
    assert collected.changed_paths == ("new.txt",)


def test_a_changed_submodule_is_saved_and_not_merged(with_submodule):
    workspace = workspace_of(with_submodule)
    inner = os.path.join(workspace.folder, "libs/lib one")
    assert sorted(os.listdir(inner)) == [".git", "lib.txt"]
    agent(inner, "echo changed > lib.txt; git commit -qam inner; echo dirty > lib.txt")
    agent(workspace.folder, "git add -A; git commit -qm outer")
    with pytest.raises(NotCollected, match="the submodule libs/lib one was changed"):
        collect(workspace, "t", 1, "Work", {}, now=1)
    submodule = workspace.submodule("libs/lib one")
    assert submodule is not None
    snapshot = latest(submodule.hub, "t", 1)
    assert snapshot is not None
    assert files_at(submodule.hub.git, snapshot.commit) == {"lib.txt": "dirty\n"}
    assert files_at(submodule.hub.git, snapshot.head) == {"lib.txt": "changed\n"}
    assert trash(workspace, "t", 1, now=1).why_kept == ()


def test_a_submodule_that_is_not_initialised(with_submodule):
    shutil.rmtree(with_submodule / "libs")
    (with_submodule / "libs" / "lib one").mkdir(parents=True)
    notes = preflight(repository_at(with_submodule)).notes
    assert any("not initialized stay empty: libs/lib one" in note for note in notes)
    workspace = workspace_of(with_submodule)
    assert workspace.submodules == ()
    assert take(workspace, "t", 1, "due", now=1).tree == workspace.hub.tree_of(workspace.base)


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="needs git-lfs")
def test_lfs(tmp_path):
    git = init(tmp_path / "p")
    git.run("lfs", "install", "--local", "--skip-repo")
    commit_files(tmp_path / "p", {".gitattributes": "*.bin filter=lfs -text\n", "a.bin": "large\n"})
    assert git.text("cat-file", "blob", "HEAD:a.bin").startswith("version https://git-lfs")
    workspace, collected = round_trip(tmp_path / "p", "cat a.bin; echo two > b.bin")
    hub = workspace.hub
    assert collected.changed_paths == ("b.bin",)
    assert files_at(hub.git, collected.head)["b.bin"].startswith("version https://git-lfs")
    stored = {
        path.read_text() for path in Path(hub.path, "lfs", "objects").rglob("*") if path.is_file()
    }
    assert stored == {"large\n", "two\n"}
