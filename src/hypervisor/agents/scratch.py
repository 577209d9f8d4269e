"""A copy of the project for one task; what the agent changed in it is kept as a patch.

The copy is compared with how it was when it was made, not with the project, in which others may
work meanwhile. Git does that, with a repository of its own outside the copy: the agent sees none.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from hypervisor.core.errors import InvalidInput

LEFT_OUT = (".git", ".hypervisor")
PATIENCE = 600
SETTINGS = (
    "user.name=hypervisor",
    "user.email=hypervisor@localhost",
    "gc.auto=0",
    "core.autocrlf=false",
    "commit.gpgsign=false",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
)


class Scratch:
    def __init__(self, folder: str, project: str) -> None:
        self.folder, self.project = folder, project
        self._repository = folder + ".git"

    def make(self, anew: bool = True) -> None:
        """Copy the project; a copy that is there stays, unless it is to be made anew."""
        if os.path.isdir(self.folder) and os.path.isdir(self._repository) and not anew:
            return
        for folder in (self.folder, self._repository):
            shutil.rmtree(folder, ignore_errors=True)
        ignore = shutil.ignore_patterns(*LEFT_OUT)
        shutil.copytree(self.project, self.folder, symlinks=True, ignore=ignore)
        self._git("init", "--quiet")
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", "--message", "as it was")

    def patch(self) -> bytes:
        """What has been changed since; b"" if nothing was. Ignored files do not count."""
        self._git("add", "--all")
        return self._git("diff", "--cached", "--binary", "HEAD")

    def keep(self, path: str) -> int:
        """Write the patch to a file, unless it is empty; returns its size."""
        text = self.patch()
        if text:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(text)
        return len(text)

    def _git(self, *words: str) -> bytes:
        git = shutil.which("git")
        if git is None:
            raise InvalidInput("a scratch copy needs git, which is not installed here.")
        where = (f"--git-dir={self._repository}", f"--work-tree={self.folder}")
        settings = [word for setting in SETTINGS for word in ("-c", setting)]
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": os.path.dirname(self.folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "LC_ALL": "C",
        }
        ended = subprocess.run(
            [git, *settings, *where, *words],
            cwd=os.path.dirname(self.folder),
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
        )
        if ended.returncode:
            said = ended.stderr.decode("utf-8", "replace").strip()[:300]
            raise InvalidInput(f"the scratch copy of {self.project}: git {words[0]} failed: {said}")
        return ended.stdout
