"""Small real repositories, made for a test."""

from __future__ import annotations

import os
from pathlib import Path

from hypervisor.git.command import Git


class Repo:
    """A repository with a work tree, in which commits are made."""

    def __init__(self, folder: Path, *, bare: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.git = folder, Git(str(folder))
        self._clock = 1_700_000_000
        kind = ["--bare"] if bare else []
        self.git.run("init", "--quiet", "--initial-branch=main", *kind)

    def commit(self, files: dict[str, str | None], message: str = "change") -> str:
        """Write the files (None deletes one) and commit them where HEAD is."""
        for name, text in files.items():
            path = self.folder / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        self.git.run("add", "--all")
        self._clock += 60
        when = f"{self._clock} +0000"
        env = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        words = ("commit", "--quiet", "--allow-empty", "--message", message)
        self.git.run(*words, env=env)
        return self.git.text("rev-parse", "HEAD")

    def branch(self, name: str, base: str, *changes: dict[str, str | None]) -> str:
        """Create a branch with a commit for each change, then switch back."""
        before = self.git.text("rev-parse", "--abbrev-ref", "HEAD")
        self.git.run("checkout", "--quiet", "-B", name, base)
        for number, change in enumerate(changes, 1):
            self.commit(change, f"{name} {number}")
        head = self.git.text("rev-parse", "HEAD")
        self.git.run("checkout", "--quiet", before)
        return head

    def read(self, commit: str, path: str) -> str | None:
        ended = self.git.run("show", f"{commit}:{path}", ok=(0, 128))
        return ended.stdout.decode() if ended.returncode == 0 else None

    def tip(self, branch: str = "main") -> str | None:
        return self.git.commit_of(f"refs/heads/{branch}")


def bare_clone(of: Repo, folder: Path) -> Git:
    """A hub: a bare clone that holds all branches."""
    os.makedirs(folder.parent, exist_ok=True)
    Git(str(folder.parent)).run(
        "clone", "--quiet", "--bare", "--local", str(of.folder), folder.name
    )
    return Git(str(folder))


def write_script(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)
