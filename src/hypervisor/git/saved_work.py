"""Showing and restoring what a task did in its workspace: diffs and snapshots.

Everything comes from the hubs, so it works whether the workspace still exists or not.
"""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput, NotFound, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.git import sql
from hypervisor.git.collect import task_ref
from hypervisor.git.command import Git, check_ref_name
from hypervisor.git.hub import Hub
from hypervisor.git.repository import discover
from hypervisor.git.sending import get_from_elsewhere
from hypervisor.git.snapshot import Snapshot, latest
from hypervisor.git.snapshot import snapshots as snapshots_in
from hypervisor.queue.sql import queries
from hypervisor.runs.spec import spec_from

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.task import Task

DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--find-renames")
MAX_DIFF_SIZE = 500_000  # bytes of a file, if its diff is asked for by its path


class SavedSnapshot(NamedTuple):
    """`at` is in milliseconds; `files` is how many differ from the base of the attempt."""

    task: str
    attempt: int
    number: int
    commit: str
    at: int
    files: int
    left_out: tuple[str, ...]


class ChangedFile(NamedTuple):
    """Lines added and removed; None for a binary file."""

    path: str
    added: int | None
    removed: int | None


class TaskDiff(NamedTuple):
    """What an attempt changed since its base. `snapshot`: None for its finished commits."""

    task: str
    attempt: int
    base: str
    commit: str
    snapshot: int | None
    files: tuple[ChangedFile, ...]
    text: str


class Restored(NamedTuple):
    """Where the files of a task are now: in a folder, or on a branch of the user's repository."""

    task: str
    commit: str
    folder: str = ""
    branch: str = ""


class _Version(NamedTuple):
    hub: Hub
    task: Task
    attempt: int
    commit: str
    snapshot: int | None


def snapshots(hv: Context, task: str, attempt: int | None = None) -> list[SavedSnapshot]:
    """List the snapshots of a task's workspace, oldest first."""
    wanted = hv.store.read(queries.task, hv.resolve(task))
    hub = _hub_of(hv, wanted.id)
    return [
        SavedSnapshot(
            wanted.id,
            _attempt_of(snapshot),
            snapshot.number,
            snapshot.commit,
            snapshot.at,
            len(_changed(hub, _base(hv, hub, wanted, _attempt_of(snapshot)), snapshot.commit)),
            tuple(map(str, snapshot.left_out)),
        )
        for snapshot in snapshots_in(hub, wanted.id, attempt)
    ]


def diff(
    hv: Context,
    task: str,
    attempt: int | None = None,
    *,
    snapshot: int | None = None,
    at: int | None = None,
    paths: Sequence[str] | None = None,
) -> TaskDiff:
    """Show what an attempt changed: its commits, or its files at a snapshot or a time.

    With `paths`, the text has only these files, as far as they are not too large for it."""
    version = _version(hv, task, attempt, snapshot, at)
    base = _base(hv, version.hub, version.task, version.attempt)
    return TaskDiff(
        version.task.id,
        version.attempt,
        base,
        version.commit,
        version.snapshot,
        tuple(_changed(version.hub, base, version.commit)),
        _text(version.hub, base, version.commit, paths),
    )


def restore(
    hv: Context,
    task: str,
    attempt: int | None = None,
    *,
    snapshot: int | None = None,
    at: int | None = None,
    to: str = "",
    branch: str = "",
) -> Restored:
    """Restore the files of a task into a new folder, or as a branch of your repository."""
    if bool(to) == bool(branch):
        raise InvalidInput("no destination given: use --to FOLDER or --branch NAME.")
    version = _version(hv, task, attempt, snapshot, at)
    if branch:
        _make_branch(hv, version, check_ref_name(branch))
        return Restored(version.task.id, version.commit, branch=branch)
    folder = os.path.abspath(to)
    _fill_folder(version, folder)
    return Restored(version.task.id, version.commit, folder=folder)


def _fill_folder(version: _Version, folder: str) -> None:
    if os.path.lexists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise InvalidInput(f"{folder} already exists and is not an empty folder.")
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as private:
        env = {"GIT_INDEX_FILE": os.path.join(private, "index"), "GIT_WORK_TREE": folder}
        git = Git(folder, env={"GIT_DIR": version.hub.path, **env})
        git.run("read-tree", version.commit)
        git.run("checkout-index", "--all", "--force", "--quiet")


def _make_branch(hv: Context, version: _Version, branch: str) -> None:
    """In the user's repository, because the user has asked for it."""
    batch = hv.store.read(queries.batch, version.task.batch)
    repository = discover(spec_from(batch.spec).cwd)
    if repository is None:
        raise NotFound(f"the repository of {version.task.id} is gone; use --to FOLDER.")
    users, ref = repository.git(), f"refs/heads/{branch}"
    if users.commit_of(ref) is not None:
        raise WrongState(f"branch {branch} already exists; choose another name.")
    words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
    users.run(*words, version.hub.path, version.commit)
    note = f"hv: restore {version.task.id}"
    users.run("update-ref", "-m", note, ref, version.commit, "0" * len(version.commit))


def _version(
    hv: Context, task: str, attempt: int | None, snapshot: int | None, at: int | None
) -> _Version:
    """The requested version: the given snapshot, else the finished commits, else the last
    snapshot."""
    wanted = hv.store.read(queries.task, hv.resolve(task))
    hub = _hub_of(hv, wanted.id)
    number = attempt or wanted.attempts
    finished = hub.git.commit_of(task_ref(wanted.id, number))
    if finished and snapshot is None and at is None:
        return _Version(hub, wanted, number, finished, None)
    fitting = [
        candidate
        for candidate in snapshots_in(hub, wanted.id, number if at is None else attempt)
        if snapshot in (None, candidate.number) and (at is None or candidate.at <= at)
    ]
    if not fitting:
        raise NotFound(
            f"no such snapshot of {wanted.id}, attempt {number}. `hv snapshots {wanted.id}` "
            "lists them."
        )
    last = fitting[-1]
    return _Version(hub, wanted, _attempt_of(last), last.commit, last.number)


def _hub_of(hv: Context, task: str) -> Hub:
    get_from_elsewhere(hv, task)
    for path in sorted(glob.glob(os.path.join(glob.escape(hv.places.data), "git", "*.git"))):
        hub = Hub(path)
        if hub.refs(f"refs/hv/snapshots/{task}", f"refs/hv/tasks/{task}"):
            return hub
    raise NotFound(
        f"{task} has no snapshots: it did not run with --workspace clone on this host, or nothing "
        "has been saved yet."
    )


def _base(hv: Context, hub: Hub, task: Task, attempt: int) -> str:
    """What an attempt started from, as far as that is known."""
    entry = hv.store.read(sql.entry, task.id, attempt)
    if entry is not None:
        return entry.base
    last = latest(hub, task.id, attempt)
    if last is None or not hub.git.commit_of(last.base or "-"):
        raise NotFound(f"the base of {task.id} is no longer known.")
    return last.base


def _text(hub: Hub, base: str, commit: str, paths: Sequence[str] | None) -> str:
    if paths is None:
        return hub.git.text(*DIFF, base, commit, "--")
    large = _large(hub, base, paths) | _large(hub, commit, paths)
    wanted = [path for path in paths if path not in large]
    return hub.git.text("--literal-pathspecs", *DIFF, base, commit, "--", *wanted) if wanted else ""


def _large(hub: Hub, commit: str, paths: Sequence[str]) -> set[str]:
    """Those of these files whose diff would be too large."""
    if not paths:
        return set()
    words = ("--literal-pathspecs", "ls-tree", "-r", "-l", "-z", "--full-tree", commit, "--")
    rows = (line.split("\t", 1) for line in hub.git.names(*words, *paths))
    return {path for facts, path in rows if (_count(facts.split()[-1]) or 0) > MAX_DIFF_SIZE}


def _changed(hub: Hub, base: str, commit: str) -> list[ChangedFile]:
    words = ("diff", "--numstat", "-z", "--no-renames", "--no-ext-diff", base, commit, "--")
    rows = (line.split("\t", 2) for line in hub.git.names(*words))
    return [ChangedFile(path, _count(added), _count(removed)) for added, removed, path in rows]


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _attempt_of(snapshot: Snapshot) -> int:
    return int(snapshot.ref.split("/")[-2])
