"""A workspace is removed only with proof that nothing is lost.

First everything that only the workspace holds is saved in the hub: its files as a snapshot, and
every commit in it, also those that no branch, stash or reflog names any more. When all of that is
on disk, the folder is renamed into the trash, and deleted after a retention time if what was saved
is still there. If a check fails, the workspace stays.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hypervisor.core.errors import HypervisorError, WorkspaceError
from hypervisor.core.private_folders import make_private_folders
from hypervisor.git.anchors import bring, own_commits, view_of
from hypervisor.git.files import flush_file_system, locked, write_file
from hypervisor.git.hub import Hub
from hypervisor.git.snapshot import folder_of, kept_folder, take
from hypervisor.git.work_tree import Limits
from hypervisor.git.workspace import Workspace

MAX_REASONS = 20


@dataclass(frozen=True)
class Trashed:
    """`path` is where the workspace is now; None if it stays where it was, for these reasons."""

    path: str | None
    why_kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrashEntry:
    """A removed workspace: deleted if `why_kept` is empty, with its size in bytes."""

    path: str
    size: int
    why_kept: tuple[str, ...] = ()


def why_kept(
    workspace: Workspace, task: str, attempt: int, *, now: int, limits: Limits | None = None
) -> list[str]:
    """Save everything that only this workspace holds. Returns what is not saved yet, which is why
    it must stay; nothing if it may be removed."""
    limits = limits or Limits()
    reasons: list[str] = []
    checks: list[tuple[str, Callable[[], list[str]]]] = [
        ("processes", lambda: _running(workspace.folder)),
        ("files", lambda: _save_files(workspace, task, attempt, now, limits)),
        ("commits", lambda: save_commits(workspace, task, attempt, limits)),
        ("linked work trees", lambda: _linked(workspace)),
        ("repositories inside", lambda: _inside(workspace)),
        ("disk", lambda: _flush(workspace.hub)),
    ]
    for name, check in checks:
        try:
            reasons += check()
        except (HypervisorError, OSError, ValueError) as error:
            reasons.append(f"could not check {name}: {error}")
    for path in workspace.submodules:
        submodule = workspace.submodule(path)
        if submodule is not None and os.path.isdir(submodule.folder):
            inner = why_kept(submodule, task, attempt, now=now, limits=limits)
            reasons += [f"submodule {path}: {reason}" for reason in inner]
    return reasons


def trash(
    workspace: Workspace,
    task: str,
    attempt: int,
    *,
    now: int,
    even_unsaved: bool = False,
    in_use: Callable[[], list[str]] = list,
    limits: Limits | None = None,
) -> Trashed:
    """Rename a workspace into the trash, if nothing is lost when it is deleted from there.
    `even_unsaved`: to make room for a new one; what is not saved then stays in the trash.
    `in_use` is asked while nobody else can open the workspace: why it must stay after all."""
    make_private_folders(workspace.state)
    with locked(os.path.join(workspace.state, "lock")):
        reasons = why_kept(workspace, task, attempt, now=now, limits=limits)
        if reasons and even_unsaved:  # the last chance: a check may have failed by chance
            reasons = why_kept(workspace, task, attempt, now=now, limits=limits)
        running = [*_running(workspace.folder), *in_use()]
        if running or (reasons and not even_unsaved):
            return Trashed(None, tuple(dict.fromkeys([*running, *reasons])))
        folder = trash_folder(workspace)
        make_private_folders(folder)
        path = os.path.join(folder, f"{task}.{attempt}-{now}")
        facts = {
            "at": now,
            "why_kept": reasons[:MAX_REASONS],
            "hubs": _saved(workspace, task, attempt),
        }
        write_file(f"{path}.json", json.dumps(facts))
        os.rename(workspace.folder, path)
        _forget(workspace.state)
    return Trashed(path, tuple(reasons))


def trash_folder(workspace: Workspace) -> str:
    """Next to the folder of all workspaces."""
    return os.path.join(os.path.dirname(os.path.dirname(workspace.folder)), "trash")


def empty_trash(
    folder: str, *, now: int, retention: int, dry_run: bool = False
) -> list[TrashEntry]:
    """Delete workspaces that have been in the trash for the retention time (in milliseconds).
    Returns what is in it, and why the rest stays."""
    if not os.path.isdir(folder):
        return []
    entries = []
    for name in sorted(name for name in os.listdir(folder) if not name.endswith(".json")):
        path = os.path.join(folder, name)
        entries.append(_empty(path, now - retention, dry_run))
    for name in os.listdir(folder):
        path = os.path.join(folder, name.removesuffix(".json"))
        if name.endswith(".json") and not os.path.lexists(path) and not dry_run:
            _drop_note(path, now - retention)
    return entries


def _empty(path: str, before: int, dry_run: bool) -> TrashEntry:
    size = size_of(path)
    try:
        facts = _facts(path)
        reasons = [*facts["why_kept"], *_lost(facts["hubs"]), *_running(path)]
        if facts["at"] > before:
            reasons.append("the retention time is not over")
    except (HypervisorError, OSError, ValueError, KeyError, TypeError) as error:
        reasons = [f"could not check what was saved: {error}"]
    if not reasons and not dry_run:
        _delete(path)
        with suppress(FileNotFoundError):
            os.unlink(f"{path}.json")
    return TrashEntry(path, size, tuple(reasons))


def _save_files(
    workspace: Workspace, task: str, attempt: int, now: int, limits: Limits
) -> list[str]:
    """Twice: the second one must find nothing new."""
    take(workspace, task, attempt, "before removal", now=now, limits=limits)
    snapshot = take(workspace, task, attempt, "before removal", now=now, limits=limits)
    changing = ["its files are still changing"] if snapshot.is_new else []
    files = [item for item in snapshot.left_out if not item.is_commit]  # commits: see below
    return [*changing, *(f"not saved: {item}" for item in files)]


def save_commits(workspace: Workspace, task: str, attempt: int, limits: Limits) -> list[str]:
    """Every commit in the object store of the workspace gets a ref in the hub that leads to it."""
    if not os.path.lexists(workspace.git_dir):
        return []  # the agent deleted it; what had been saved before is in the hub
    if not workspace.has_repository:
        return [f"{workspace.git_dir} is not a folder any more"]
    hub, commits = workspace.hub, own_commits(workspace)
    tips = _newest(view_of(workspace), _unreached(hub, commits))
    present, left_out = bring(workspace, tips, limits)
    for commit in sorted(present):
        hub.update_ref(f"{kept_folder(task, attempt)}/{commit}", commit)
    still = _unreached(hub, commits)
    reasons = [f"not saved: {item}" for item in left_out]
    return reasons or [f"not saved: commit {commit[:12]}" for commit in still]


def _unreached(hub: Hub, commits: list[str]) -> list[str]:
    """Those that no ref of the hub leads to."""
    stdin = "".join(f"{commit}\n" for commit in commits).encode()
    words = ("rev-list", "--ignore-missing", "--stdin", "--not", "--all")
    there = hub.git.run("cat-file", "--batch-check=%(objecttype)", stdin=stdin).stdout.split(b"\n")
    missing = {commit for commit, kind in zip(commits, there, strict=False) if kind != b"commit"}
    listed = set(hub.git.text(*words, stdin=stdin).split())
    return [commit for commit in commits if commit in missing or commit in listed]


def _newest(hub: Hub, commits: list[str]) -> list[str]:
    """Without those that others of them contain."""
    parents: set[str] = set()
    for start in range(0, len(commits), 500):
        words = ("rev-list", "--no-walk", "--parents", *commits[start : start + 500])
        for line in hub.git.text(*words).splitlines():
            parents.update(line.split()[1:])
    return [commit for commit in commits if commit not in parents]


def _linked(workspace: Workspace) -> list[str]:
    """Work trees that the agent has made elsewhere and that need this repository."""
    parent = os.path.join(workspace.git_dir, "worktrees")
    reasons = []
    for name in os.listdir(parent) if os.path.isdir(parent) else []:
        with open(os.path.join(parent, name, "gitdir"), encoding="utf-8") as file:
            path = os.path.dirname(file.read().strip())
        inside = os.path.realpath(path).startswith(os.path.realpath(workspace.folder) + os.sep)
        if os.path.lexists(path) and not inside:
            reasons.append(f"{path} is a work tree of it")
    return reasons


def _inside(workspace: Workspace) -> list[str]:
    """Repositories that the agent has made in it: their commits are nowhere else."""
    known = {workspace.folder, *(os.path.join(workspace.folder, p) for p in workspace.submodules)}
    reasons = []
    for folder, folders, files in os.walk(workspace.folder, onerror=_raise):
        if folder not in known and (".git" in folders or ".git" in files):
            reasons.append(f"{folder} is a repository of its own")
        folders[:] = [name for name in folders if name != ".git"]
    return reasons[:MAX_REASONS]


def _running(folder: str) -> list[str]:
    """Processes of ours that work in a folder."""
    top = os.path.realpath(folder)
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    running = [pid for pid in pids if pid != os.getpid() and _works_in(pid, top)]
    return [f"process {pid} is running in it" for pid in running]


def _works_in(pid: int, top: str) -> bool:
    try:
        cwd = os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)")
    except OSError:  # it has ended, or belongs to another user
        return False
    return cwd == top or cwd.startswith(top + os.sep)


def _flush(hub: Hub) -> list[str]:
    flush_file_system(hub.path)
    return []


def _saved(workspace: Workspace, task: str, attempt: int) -> dict[str, dict[str, str]]:
    """The refs in the hubs that hold what the workspace held."""
    folders = (folder_of(task, attempt), kept_folder(task, attempt))
    refs = {workspace.hub.path: workspace.hub.refs(*folders)}
    for path in workspace.submodules:
        submodule = workspace.submodule(path)
        if submodule is not None:
            refs |= _saved(submodule, task, attempt)
    return refs


def _lost(hubs: dict[str, dict[str, str]]) -> list[str]:
    """What was saved but is no longer there."""
    reasons = []
    for path, refs in hubs.items():
        if not refs:
            reasons.append(f"nothing was saved in {path}")
            continue
        there = Hub(path).refs("refs/hv")
        gone = [ref for ref, commit in refs.items() if there.get(ref) != commit]
        reasons += [f"{ref} is gone from {path}" for ref in gone[:MAX_REASONS]]
    return reasons


def _facts(path: str) -> dict[str, Any]:
    with open(f"{path}.json", encoding="utf-8") as file:
        facts = json.load(file)
    if not isinstance(facts, dict) or not facts.get("hubs"):
        raise WorkspaceError(f"{path}.json is damaged")
    return facts


def _drop_note(path: str, before: int) -> None:
    """Of a workspace that was not renamed after all, or is deleted."""
    with suppress(OSError, ValueError, HypervisorError, KeyError, TypeError):
        if _facts(path)["at"] <= before:
            os.unlink(f"{path}.json")


def _forget(state: str) -> None:
    """All but the lock, which others may wait for."""
    for name in os.listdir(state):
        path = os.path.join(state, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif name != "lock":
            os.unlink(path)


def _delete(path: str) -> None:
    """Also folders that were made read-only, as some package caches are. Links are not followed."""
    for folder, folders, _ in os.walk(path):
        for name in [".", *folders]:
            inner = os.path.normpath(os.path.join(folder, name))
            if not os.path.islink(inner):
                mode = stat.S_IMODE(os.lstat(inner).st_mode)
                if mode & 0o700 != 0o700:
                    os.chmod(inner, mode | 0o700)
    shutil.rmtree(path)


def size_of(path: str) -> int:
    return sum(_sizes(path))


def _sizes(path: str) -> Iterator[int]:
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                yield os.lstat(os.path.join(folder, name)).st_blocks * 512


def _raise(error: OSError) -> None:
    raise error
