"""A scratch copy of the project for one task; the agent's changes are kept as a patch.

The copy is compared with its initial state, not with the project, which may change at the same
time. This uses a separate git repository outside the copy, which the agent does not see.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput
from hypervisor.core.places import make_private
from hypervisor.runs.retrying_store import if_possible
from hypervisor.runs.workspaces import Opened, Returned

if TYPE_CHECKING:
    from hypervisor.queue.lease import Lease
    from hypervisor.queue.stop import Stop
    from hypervisor.queue.task import Task
    from hypervisor.runs.worker import WorkerContext

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


class ScratchCopies:
    """A copy for each task: see workspaces.py."""

    def __init__(self, ctx: WorkerContext) -> None:
        self._ctx = ctx
        self._parent = os.path.join(ctx.hv.places.data, "scratch")

    def returned(self, task: Task) -> Returned | None:
        return None

    def open(self, lease: Lease, continues: bool) -> Opened:
        copy = self._copy(lease.task.id)
        make_private(self._parent)
        copy.make(replace=not continues)
        return Opened(copy.folder)

    def look(self, lease: Lease, now: float) -> None:
        """Changes are saved at the end."""

    def stopped(self, lease: Lease, stop: Stop) -> None:
        if stop.next != "cancel":  # it is not needed
            self.closed(lease)

    def closed(self, lease: Lease) -> None:
        ctx, task = self._ctx, lease.task
        path = ctx.outputs.path(task.id, task.attempts).removesuffix(".log") + ".patch"
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            size = self._copy(task.id).keep(path)
            message = f"its changes are in {path}" if size else "it changed nothing"
        except (OSError, InvalidInput) as error:
            size, message = 0, f"its changes could not be saved: {error}"
        with if_possible(ctx.hv):
            data = {"path": path if size else "", "bytes": size, "message": message}
            ctx.note("patch", data, task.id)

    def forget(self, task: str) -> None:
        self._copy(task).remove()

    def _copy(self, task: str) -> Scratch:
        return Scratch(os.path.join(self._parent, task), self._ctx.spec.cwd)


class Scratch:
    def __init__(self, folder: str, project: str) -> None:
        self.folder, self.project = folder, project
        self._repository = folder + ".git"

    def make(self, replace: bool = True) -> None:
        """Copy the project; without `replace`, an existing copy stays."""
        if os.path.isdir(self.folder) and os.path.isdir(self._repository) and not replace:
            return
        self.remove()
        ignore = shutil.ignore_patterns(*LEFT_OUT)
        shutil.copytree(self.project, self.folder, symlinks=True, ignore=ignore)
        self._git("init", "--quiet")
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", "--message", "as it was")

    def remove(self) -> None:
        for folder in (self.folder, self._repository):
            shutil.rmtree(folder, ignore_errors=True)

    def patch(self) -> bytes:
        """The changes so far; b"" if there are none. Ignored files do not count."""
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
            raise InvalidInput("a scratch copy needs git, which is not installed.")
        location = (f"--git-dir={self._repository}", f"--work-tree={self.folder}")
        settings = [word for setting in SETTINGS for word in ("-c", setting)]
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": os.path.dirname(self.folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "LC_ALL": "C",
        }
        ended = subprocess.run(
            [git, *settings, *location, *words],
            cwd=os.path.dirname(self.folder),
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
        )
        if ended.returncode:
            message = ended.stderr.decode("utf-8", "replace").strip()[:300]
            raise InvalidInput(
                f"the scratch copy of {self.project}: git {words[0]} failed: {message}"
            )
        return ended.stdout
