"""Workspaces: fast to create, many at once, and isolated from each other."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from hypervisor.core.errors import GitFailed, InvalidInput, WorkspaceError
from hypervisor.git.command import Git
from hypervisor.git.hub import open_hub
from hypervisor.git.workspace import create, open_existing, state_folder
from tests.git.support import agent, commit_files, init, repository_at, write_files


def test_has_the_base_on_a_branch_of_its_own(workspace, hub):
    assert agent(workspace.folder, "git status --short --branch") == "## hv/batch/task1\n"
    assert agent(workspace.folder, "git rev-parse HEAD").strip() == workspace.base
    assert sorted(os.listdir(workspace.folder)) == [".git", ".gitignore", "a.txt", "folder"]
    assert agent(workspace.folder, "git branch -r").split() == ["origin/main", "origin/other"]
    assert agent(workspace.folder, "git describe --tags").strip() == "v1"
    agent(workspace.folder, "git fsck --strict")


def test_the_agent_can_commit_without_an_identity(workspace):
    agent(workspace.folder, "echo x > a.txt; git commit -qam changed; git fetch -q origin")
    assert agent(workspace.folder, "git log -1 --format=%an").strip() == "Hypervisor"


def test_the_agent_commits_as_the_user(checkout, data, repository):
    Git(str(checkout)).run("config", "user.name", 'Zoë "Z" O\\Neill')
    Git(str(checkout)).run("config", "user.email", "zoe@example.org")
    hub = open_hub(str(data), repository)
    workspace = create(hub, str(data / "git/work/t"), "hv/b/t", hub.resolve())
    agent(workspace.folder, "git commit -q --allow-empty -m x")
    name = agent(workspace.folder, "git log -1 --format='%an <%ae>'").strip()
    assert name == 'Zoë "Z" O\\Neill <zoe@example.org>'


def test_it_cannot_push(workspace):
    for words in ("origin", "origin HEAD", "-f origin HEAD:main", "--all"):
        out = agent(workspace.folder, f"git push {words} 2>&1 && echo PUSHED || true")
        assert "PUSHED" not in out


def test_without_its_git_it_does_not_reach_the_users_repository(workspace):
    script = "rm -rf .git; git add -A 2>&1 && echo ADDED; git reset --hard 2>&1 && echo RESET; true"
    out = agent(workspace.folder, script, workspace.environment)
    assert "not a git repository" in out and "ADDED" not in out and "RESET" not in out


def test_made_twice_it_is_the_same(workspace, hub):
    agent(workspace.folder, "echo mine > a.txt")
    again = create(hub, workspace.folder, workspace.branch, workspace.base)
    assert again == workspace == open_existing(workspace.folder)
    with open(os.path.join(workspace.folder, "a.txt")) as file:
        assert file.read() == "mine\n"


def test_another_one_in_its_place(workspace, hub):
    with pytest.raises(WorkspaceError, match="already exists, with other work in it"):
        create(hub, workspace.folder, "hv/other/task1", workspace.base)


def test_not_a_workspace(tmp_path):
    assert open_existing(str(tmp_path / "gone")) is None
    with pytest.raises(WorkspaceError, match="is not a workspace"):
        open_existing(str(tmp_path))


@pytest.mark.parametrize("branch", ["a..b", "-x", "a b", ""])
def test_a_branch_name_that_git_refuses(hub, data, branch):
    with pytest.raises(InvalidInput, match="invalid branch name"):
        create(hub, str(data / "git/work/x"), branch, hub.resolve())


def test_a_base_that_the_hub_lacks(hub, data):
    folder = data / "git/work/x"
    with pytest.raises(GitFailed):
        create(hub, str(folder), "hv/b/x", "1" * 40)
    assert not folder.exists()
    assert create(hub, str(folder), "hv/b/x", hub.resolve()).base == hub.resolve()


def test_only_some_folders(tmp_path):
    names = ("top.txt", "a/x/1.txt", "a/y/2.txt", "b/3.txt", "a/here.txt", "w[x]/4.txt", "wx/5.txt")
    init(tmp_path / "big")
    commit_files(tmp_path / "big", dict.fromkeys(names, "text\n"))
    hub = open_hub(str(tmp_path / "data"), repository_at(tmp_path / "big"))
    folder = str(tmp_path / "data/git/work/t")
    create(hub, folder, "hv/b/t", hub.resolve(), sparse=("a/x", "w[x]/", "a/x/deeper"))
    found = [
        os.path.relpath(os.path.join(here, name), folder)
        for here, _, files in os.walk(folder)
        if ".git" not in here
        for name in files
    ]
    assert sorted(found) == ["a/here.txt", "a/x/1.txt", "top.txt", "w[x]/4.txt"]
    assert agent(folder, "git status --porcelain") == ""
    assert agent(folder, "git sparse-checkout list").split() == ["a/x", "w[x]"]


def test_many_at_once(tmp_path):
    """The small version of bench/workspaces.py."""
    init(tmp_path / "project")
    write_files(tmp_path / "project", {f"{n % 20}/{n}.txt": f"{n}\n" for n in range(400)})
    base = commit_files(tmp_path / "project", {})
    hub = open_hub(str(tmp_path / "data"), repository_at(tmp_path / "project"))

    def make(number: int) -> str:
        folder = str(tmp_path / "data" / "git" / "work" / f"task{number}")
        return create(hub, folder, f"hv/b/task{number}", base).folder

    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(make, range(24)))
    for folder in folders:
        assert agent(folder, "git status --porcelain; git ls-files | wc -l").strip() == "400"
        assert os.listdir(state_folder(folder)) != []


def test_two_at_once_in_one_place(hub, data):
    folder, base = str(data / "git/work/x"), hub.resolve()
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: create(hub, folder, "hv/b/x", base), range(4)))
    assert len(set(made)) == 1
