"""Small helpers for tests with real repositories."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from hypervisor.git.command import Git
from hypervisor.git.repository import Repository, discover

IDENTITY = ("-c", "user.name=Agent", "-c", "user.email=agent@example.org")


def init(folder: Path, *options: str) -> Git:
    folder.mkdir(parents=True)
    git = Git(str(folder))
    git.run("init", "--quiet", "--initial-branch=main", *options)
    return git


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def commit_files(folder: Path, files: Mapping[str, str | bytes], message: str = "files") -> str:
    """Write, add and commit; returns the commit."""
    write_files(folder, files)
    git = Git(str(folder))
    git.run("add", "--all")
    git.run("commit", "--quiet", "--allow-empty", "--message", message)
    return git.text("rev-parse", "HEAD")


def agent(folder: str, script: str, env: Mapping[str, str] | None = None) -> str:
    """Run a shell script as an agent would, in its workspace; returns what it printed."""
    environ = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", **(env or {})}
    return subprocess.run(
        ["sh", "-ec", script],
        cwd=folder,
        env=environ,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ).stdout


def files_at(git: Git, commit: str) -> dict[str, str]:
    """The files of a commit with their content."""
    names = git.names("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
    return {name: git.run("cat-file", "blob", f"{commit}:{name}").stdout.decode() for name in names}


def versions(git: Git, name: str) -> set[str]:
    """The content of a file in every commit that one of our refs leads to."""
    commits = git.text("rev-list", "--glob=refs/hv/*").split()
    asked = "".join(f"{commit}:{name}\n" for commit in commits).encode()
    ids = git.text("cat-file", "--batch-check=%(objectname)", stdin=asked).splitlines()
    known = {line for line in ids if " " not in line}
    return {git.run("cat-file", "blob", identifier).stdout.decode() for identifier in known}


def repository_at(folder: Path) -> Repository:
    repository = discover(str(folder))
    assert repository is not None
    return repository


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
