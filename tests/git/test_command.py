"""The wrapper around git: the user's setup does not interfere, and failures are reported."""

from __future__ import annotations

import os

import pytest

from hypervisor.core.errors import GitFailed, GitUnusable, InvalidInput
from hypervisor.git import command
from hypervisor.git.command import Git, check_ref_name
from tests.git.support import wait_until


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "a repository"
    folder.mkdir()
    git = Git(str(folder))
    git.run("init", "--quiet", "--initial-branch=main")
    git.run("commit", "--quiet", "--allow-empty", "--message", "first")
    return git


@pytest.fixture
def no_git(monkeypatch, tmp_path):
    command.program.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    yield tmp_path
    command.program.cache_clear()


def test_needs_no_identity_and_runs_no_hook(repository, tmp_path):
    hook = os.path.join(repository.folder, ".git/hooks/pre-commit")
    os.makedirs(os.path.dirname(hook), exist_ok=True)
    with open(hook, "w") as file:
        file.write(f"#!/bin/sh\ntouch '{tmp_path}/hook-ran'\nexit 1\n")
    os.chmod(hook, 0o755)
    repository.run("config", "commit.gpgSign", "true")
    repository.run("commit", "--quiet", "--allow-empty", "--message", "second")
    assert repository.text("rev-list", "--count", "HEAD") == "2"
    assert not (tmp_path / "hook-ran").exists()


def test_does_not_read_the_users_configuration(repository, tmp_path, monkeypatch):
    (tmp_path / ".gitconfig").write_text("[user]\n  name = Somebody\n[alias]\n  log = !exit 3\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")
    repository.run("commit", "--quiet", "--allow-empty", "--message", "second")
    assert repository.text("log", "-1", "--format=%an") == "Hypervisor"


def test_a_failure_says_which_command_and_what_git_printed(repository):
    with pytest.raises(GitFailed, match=r"git checkout failed: .*pathspec") as raised:
        repository.run("-c", "x.y=z", "checkout", "no-such-branch")
    assert raised.value.exit_code == 1


def test_a_command_that_hangs_is_killed_with_its_children(repository, tmp_path):
    with pytest.raises(GitFailed, match="took longer than 1 s") as raised:
        alias = f"alias.hang=!echo $$ > '{tmp_path}/pid'; sleep 60"
        repository.run("-c", alias, "hang", timeout=1)
    assert raised.value.exit_code is None
    exe = f"/proc/{(tmp_path / 'pid').read_text().strip()}/exe"
    assert wait_until(lambda: not os.path.exists(exe))


def test_a_folder_that_is_gone(tmp_path):
    with pytest.raises(GitFailed, match="No such file"):
        Git(str(tmp_path / "gone")).run("status")


def test_names_may_hold_anything(repository):
    names = ["with space", "with\nnewline", "-dash", os.fsdecode(b"not-utf8-\xff"), "ünicode"]
    for name in names:
        with open(os.path.join(repository.folder, name), "w"):
            pass
    repository.run("add", "--all")
    assert sorted(repository.names("ls-files", "-z")) == sorted(names)


def test_no_revision_is_not_an_error(repository):
    assert repository.commit_of("main") == repository.text("rev-parse", "HEAD")
    for revision in ("gone", "--all", "-x", "", "main..main", "^main"):
        assert repository.commit_of(revision) is None


NO_BRANCHES = (
    "|-x|a b|a..b|a\nb|/a|a/|a.lock|a.lock/b|@|a@{b|a/.b|.a|a:b|a?|a*|a[|a\\|a~1|a^|a//b|a."
)


@pytest.mark.parametrize("name", [*NO_BRANCHES.split("|"), "x" * 201])
def test_a_name_that_is_not_a_branch(repository, name):
    with pytest.raises(InvalidInput, match="invalid branch name"):
        check_ref_name(name)
    if len(name) < 200 and not name.startswith(("-", "@")):  # not safe, but git allows them
        assert not repository.succeeds("check-ref-format", f"refs/heads/{name}")


@pytest.mark.parametrize("name", ["main", "hv/nightly/01ABC", "feature/ünicode", "a-b", "a@b"])
def test_a_name_of_a_branch(name):
    assert check_ref_name(name) == name


def test_without_git(no_git):
    with pytest.raises(GitUnusable, match="git is not installed"):
        command.program()


def test_an_old_git(no_git):
    (no_git / "git").write_text("#!/bin/sh\necho git version 2.30.2\n")
    (no_git / "git").chmod(0o755)
    with pytest.raises(GitUnusable, match=r"git 2\.30 is too old"):
        command.program()
