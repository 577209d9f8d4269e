"""Benches: checkouts in which verification runs.

A bench borrows the objects of the hub, so any commit of the hub can be checked out at once. A lock
that the kernel releases keeps two processes out of one bench. A bench that git can no longer use
is rebuilt.
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hypervisor.core.errors import GitFailed, WorkspaceError
from hypervisor.core.places import digest, take_lock
from hypervisor.git.command import Git
from hypervisor.git.files import write_file
from hypervisor.git.hub import Hub
from hypervisor.git.removal import size_of
from hypervisor.git.workspace import check_out_submodules
from hypervisor.resources.process_table import read_process
from hypervisor.runs.processes import tree as processes

POLL = 0.02  # seconds
NEW, LOCK = ".new-", ".lock"
BRANCH = "hv/verify"  # in submodules
COPIED = ("info/exclude", "info/attributes")
SETTINGS = "hv-settings"  # of the hub: line endings, filters


class Cancelled(Exception):
    """The verification was stopped because its result is no longer needed."""


class Bench:
    """One checkout, for the thread that holds its lock."""

    def __init__(self, hub: Git, folder: str) -> None:
        self._hub, self.folder = hub, folder
        self._mark = f"verify-{digest(os.path.realpath(folder))}"
        self._git = Git(
            folder, env={"GIT_DIR": os.path.join(folder, ".git"), "GIT_WORK_TREE": folder}
        )

    def environment(self) -> dict[str, str]:
        """For programs that run in it: a mark by which all its processes are found, and no other
        repository."""
        return {
            processes.MARK: self._mark,
            "GIT_CEILING_DIRECTORIES": os.path.dirname(self.folder),
            "GIT_TERMINAL_PROMPT": "0",
        }

    def prepare(self, commit: str, tree: str, *, pristine: bool) -> None:
        """Check out a commit. Other files are removed, except those that git ignores; with
        `pristine`, these too."""
        self.end_processes(None, 0.0)  # of a verification whose merger was killed
        try:
            self._check_out(commit, tree, pristine)
        except (GitFailed, OSError):
            self._remove()
            self._build()
            self._check_out(commit, tree, pristine)

    def end_processes(self, leader: tuple[int, int] | None, grace: float) -> None:
        """End everything that was started in it."""
        try:
            processes.end_leftovers({self._mark}, leader, None, grace)
        except processes.TreeSurvived as survived:
            raise WorkspaceError(f"verification in {self.folder}: {survived}") from None

    def _check_out(self, commit: str, tree: str, pristine: bool) -> None:
        for name in ("index.lock", "HEAD.lock"):  # left by a git that was killed
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, ".git", name))
        self._git.run("checkout", "--quiet", "--force", "--detach", commit)
        self._git.run("clean", "--quiet", "-ffdx" if pristine else "-ffd")
        check_out_submodules(Hub(self._hub.folder), self.folder, BRANCH, commit)
        if self._git.text("write-tree") != tree:
            raise GitFailed("git checkout", f"{self.folder} does not hold the tree {tree}")

    def _build(self) -> None:
        """Under another name until it is complete."""
        parent, name = os.path.split(self.folder)
        os.makedirs(parent, mode=0o700, exist_ok=True)
        for leftover in os.listdir(parent):
            if leftover.startswith(f"{name}{NEW}"):
                shutil.rmtree(os.path.join(parent, leftover), ignore_errors=True)
        new = f"{self.folder}{NEW}{uuid.uuid4().hex}"
        words = ("clone", "--quiet", "--shared", "--no-checkout", "--no-tags", "--template=")
        Git(parent).run(*words, "--", self._hub.folder, new)
        # --shared has no effect if the hub is shallow, so it is done again.
        objects = os.path.join(self._hub.folder, "objects")
        write_file(os.path.join(new, ".git", "objects", "info", "alternates"), f"{objects}\n")
        settings = os.path.join(self._hub.folder, SETTINGS)
        if os.path.exists(settings):
            Git(new).run("config", "include.path", settings)
        for path in COPIED:
            with suppress(FileNotFoundError):
                copy = os.path.join(new, ".git", path)
                os.makedirs(os.path.dirname(copy), exist_ok=True)
                shutil.copyfile(os.path.join(self._hub.folder, path), copy)
        os.rename(new, self.folder)

    def remove(self) -> None:
        """End what runs in it, and remove it."""
        self.end_processes(None, 0.0)
        self._remove()

    def _remove(self) -> None:
        if os.path.lexists(self.folder):
            doomed = f"{self.folder}{NEW}{uuid.uuid4().hex}"
            os.rename(self.folder, doomed)
            shutil.rmtree(doomed, ignore_errors=True)


class Benches:
    """The benches of a lane: `<folder>/<lane>-<number>`."""

    def __init__(self, hub: Git, folder: str, lane: str, count: int = 1) -> None:
        self.count = count
        self._benches = [Bench(hub, os.path.join(folder, f"{lane}-{n}")) for n in range(count)]
        self._folder = folder

    @contextmanager
    def take(self, cancel: threading.Event | None = None) -> Iterator[Bench]:
        """A free bench; waits for one."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        while True:
            for bench in self._benches:
                with _locked(bench.folder) as is_ours:
                    if is_ours:
                        yield bench
                        return
            if cancel is not None and cancel.is_set():
                raise Cancelled
            time.sleep(POLL)


def remove_unused(folder: str, before: float, *, dry_run: bool = False) -> list[int]:
    """Remove the benches that have not been used since then (in seconds since 1970). Returns the
    size of each."""
    sizes = []
    for lock in sorted(glob.glob(os.path.join(glob.escape(folder), f"*{LOCK}"))):
        bench = Bench(Git(folder), lock.removesuffix(LOCK))
        with suppress(OSError, WorkspaceError):  # in use: next time
            if os.stat(lock).st_mtime >= before:
                continue
            with _locked(bench.folder, touch=False) as is_ours:
                if is_ours:
                    sizes.append(size_of(bench.folder))
                if is_ours and not dry_run:
                    bench.remove()
                    os.unlink(lock)
    return sizes


@contextmanager
def _locked(folder: str, *, touch: bool = True) -> Iterator[bool]:
    """Whether a bench is ours. The time of its lock is when it was taken last."""
    path = f"{folder}{LOCK}"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        is_ours = take_lock(handle, fcntl.LOCK_EX) and _is_file(handle, path)
        if is_ours and touch:
            os.utime(handle)
        yield is_ours
    finally:
        os.close(handle)


def _is_file(handle: int, path: str) -> bool:
    """Whether the path still leads to the open file: a lock is deleted with its bench."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(path))
    return False


def leader_of(pid: int) -> tuple[int, int] | None:
    """The process and when it started, to recognize it by."""
    process = read_process(pid)
    return None if process is None else (pid, process.start)
