"""A user's repository for the tests of this room."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hypervisor.git.hub import Hub, open_hub
from hypervisor.git.repository import Repository
from hypervisor.git.workspace import Workspace, create
from tests.git.fingerprint import fingerprint
from tests.git.queue_field import Field
from tests.git.support import commit_files, init, repository_at


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hides the git configuration of the user who runs the tests."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The user's checkout: some files, a stash entry, a second branch, a dirty file."""
    folder = tmp_path / "my project"
    git = init(folder)
    commit_files(folder, {"a.txt": "a\n", "folder/b.txt": "b\n", ".gitignore": "*.log\n"})
    git.run("branch", "other")
    git.run("tag", "v1")
    (folder / "a.txt").write_text("stashed\n")
    git.run("stash", "push", "--quiet")
    (folder / "folder" / "b.txt").write_text("dirty\n")
    (folder / "new file.txt").write_text("new\n")
    return folder


@pytest.fixture
def repository(checkout) -> Repository:
    return repository_at(checkout)


@pytest.fixture
def data(checkout: Path) -> Path:
    """The data folder, in the user's checkout and ignored there, as .hypervisor is."""
    folder = checkout / ".hypervisor"
    folder.mkdir()
    (folder / ".gitignore").write_text("*\n")
    return folder


@pytest.fixture
def hub(data, repository) -> Hub:
    return open_hub(str(data), repository)


@pytest.fixture
def untouched(checkout, data):
    """The user's repository must be the same, byte for byte, at the end of the test."""
    before = fingerprint(checkout)
    yield
    assert fingerprint(checkout) == before


@pytest.fixture
def workspace(hub, data, untouched) -> Workspace:
    folder = data / "git" / "work" / "task1"
    return create(hub, str(folder), "hv/batch/task1", hub.resolve())


@pytest.fixture
def field(tmp_path):
    return Field(tmp_path)
