"""Snapshots: what a workspace holds at a moment, as a commit in the hub.

Its tree is that of the files, whether staged or not; its first parent is the agent's commit. Other
branches and the stash are kept by refs of their own. Nothing in the workspace changes, and it works
whatever state the agent has left it in. What was left out is named.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from hypervisor.core.errors import GitFailed, WorkspaceError
from hypervisor.core.private_folders import make_private_folders
from hypervisor.git.anchors import bring, tips
from hypervisor.git.hub import Hub
from hypervisor.git.work_tree import (
    Files,
    LeftOut,
    Limits,
    Tree,
    absent_files,
    forced_files,
    write_tree,
)
from hypervisor.git.workspace import Workspace

REASON, AT, BASE = "Hypervisor-Reason", "Hypervisor-At", "Hypervisor-Base"
LEFT_OUT = "Hypervisor-Left-Out"
MAX_LEFT_OUT = 50
TRIES = 10


@dataclass(frozen=True)
class Snapshot:
    """`head` is the agent's commit, as far as it could be read; `at` is in milliseconds; `base` is
    where the workspace started. `is_new`: whether anything had changed since the last one, which
    is returned otherwise."""

    ref: str
    commit: str
    tree: str
    head: str
    at: int
    base: str
    left_out: tuple[LeftOut, ...] = ()
    is_new: bool = True

    @property
    def number(self) -> int:
        return int(self.ref.rsplit("/", 1)[1])


def take(
    workspace: Workspace,
    task: str,
    attempt: int,
    reason: str,
    *,
    now: int,
    limits: Limits | None = None,
) -> Snapshot:
    """Save what a workspace holds. Without a change since the last snapshot of the attempt, that
    one is returned. WorkspaceError: it could not be saved."""
    limits = limits or Limits()
    hub = workspace.hub
    head, left_out = keep_commits(workspace, task, attempt, limits)
    last = latest(hub, task, attempt)
    head = head or (last.head if last else workspace.base)
    tree = tree_of_files(workspace, head, limits)
    left_out += [*tree.left_out, *_take_submodules(workspace, task, attempt, reason, now, limits)]
    if last and (last.tree, last.head) == (tree.id, head):
        return replace(last, left_out=tuple(left_out), is_new=False)
    commit = hub.commit(tree.id, [head], _message(reason, now, workspace.base, left_out))
    ref = _add_ref(hub, folder_of(task, attempt), commit, last.number + 1 if last else 1)
    return Snapshot(ref, commit, tree.id, head, now, workspace.base, tuple(left_out))


def _add_ref(hub: Hub, folder: str, commit: str, number: int) -> str:
    """The next number: never the place of one that another process takes at the same time."""
    for candidate in range(number, number + TRIES):
        try:
            hub.update_ref(f"{folder}/{candidate}", commit, old="")
            return f"{folder}/{candidate}"
        except GitFailed:
            if not hub.refs(f"{folder}/{candidate}"):
                raise
    raise WorkspaceError(f"{folder}: too many snapshots at the same time")


def folder_of(task: str, attempt: int) -> str:
    return f"refs/hv/snapshots/{task}/{attempt}"


def kept_folder(task: str, attempt: int) -> str:
    return f"refs/hv/kept/{task}/{attempt}"


def snapshots(hub: Hub, task: str, attempt: int | None = None) -> list[Snapshot]:
    """Those of a task, or of one attempt, oldest first."""
    prefix = folder_of(task, attempt) if attempt is not None else f"refs/hv/snapshots/{task}"
    line = "%00".join(f"%({name})" for name in ("refname", "objectname", "tree", "parent", "body"))
    out = hub.git.text("for-each-ref", f"--format={line}%01", prefix)
    rows = [row.strip("\n").split("\0") for row in out.split("\x01") if row.strip("\n")]
    taken = [
        Snapshot(ref, commit, tree, parents.split(" ")[0], *_parsed(body))
        for ref, commit, tree, parents, body in rows
    ]
    return sorted(taken, key=lambda each: (int(each.ref.split("/")[-2]), each.number))


def _parsed(body: str) -> tuple[int, str, tuple[LeftOut, ...]]:
    """When it was taken, its base and what was left out, from the trailers of its commit."""
    trailers = [line.partition(": ")[::2] for line in body.splitlines()]
    at = next((int(value) for key, value in trailers if key == AT and value.isdigit()), 0)
    base = next((value for key, value in trailers if key == BASE), "")
    pairs = [value.partition(" (") for key, value in trailers if key == LEFT_OUT]
    return at, base, tuple(LeftOut(path, why.removesuffix(")")) for path, _, why in pairs)


def latest(hub: Hub, task: str, attempt: int) -> Snapshot | None:
    return next(reversed(snapshots(hub, task, attempt)), None)


def thin_out(hub: Hub, task: str, attempt: int, most: int) -> None:
    """Delete snapshots of an attempt until no more than these are left: close ones first, older
    ones rather than newer ones; never the first or the last. Commits of the agent are kept."""
    kept = snapshots(hub, task, attempt)
    while len(kept) > max(most, 2):
        end = kept[-1].at
        gaps = {
            number: (kept[number + 1].at - kept[number - 1].at) / max(end - kept[number].at, 1)
            for number in range(1, len(kept) - 1)
        }
        number = min(gaps, key=lambda each: gaps[each])
        gone, later = kept.pop(number), kept[number]
        if not hub.git.succeeds("merge-base", "--is-ancestor", gone.head, later.head):
            hub.update_ref(f"{kept_folder(task, attempt)}/{gone.head}", gone.head)
        hub.delete_refs([gone.ref])


def tree_of_files(
    workspace: Workspace, head: str, limits: Limits, *, to_merge: bool = False
) -> Tree:
    """The files of a workspace as a tree in the hub. To be merged, it must not lack anything that
    was left out: `head` has the version to use, and repositories inside stay out."""
    if not os.path.isdir(workspace.folder):
        raise WorkspaceError(f"{workspace.folder} is gone; its last snapshot is kept")
    make_private_folders(workspace.state)
    return write_tree(
        Files(
            workspace.folder,
            workspace.hub.path,
            workspace.index,
            head,
            absent=lambda: _absent(workspace),
            forced=lambda: _forced(workspace),
            nested=not to_merge,
            restore=to_merge,
            kept_out=workspace.kept_out,
            limits=limits,
        )
    )


def keep_commits(
    workspace: Workspace, task: str, attempt: int, limits: Limits
) -> tuple[str | None, list[LeftOut]]:
    """Bring the agent's commits into the hub, with refs for those on other branches and for the
    stash. Returns the commit that is checked out, if it could be read."""
    try:
        names = tips(workspace)
    except GitFailed as error:
        return None, [LeftOut("commits since the last snapshot", error.message, is_commit=True)]
    present, left_out = bring(workspace, names.values(), limits)
    head = names.pop("HEAD", None)
    known = {head, workspace.base, *workspace.hub.refs(kept_folder(task, attempt)).values()}
    for commit in (present & set(names.values())) - known:
        workspace.hub.update_ref(f"{kept_folder(task, attempt)}/{commit}", commit)
    return head if head in present else None, left_out


def _take_submodules(
    workspace: Workspace, task: str, attempt: int, reason: str, now: int, limits: Limits
) -> list[LeftOut]:
    left_out = []
    for path in workspace.submodules:
        submodule = workspace.submodule(path)
        if submodule is not None and os.path.isdir(submodule.folder):
            taken = take(submodule, task, attempt, reason, now=now, limits=limits)
            left_out += [replace(item, path=f"{path}/{item.path}") for item in taken.left_out]
    return left_out


def _absent(workspace: Workspace) -> set[str]:
    """Files that the agent's sparse checkout leaves out, if it has one."""
    if not os.path.exists(os.path.join(workspace.git_dir, "info", "sparse-checkout")):
        return set()
    try:
        return absent_files(workspace.git)
    except GitFailed:
        return set()


def _forced(workspace: Workspace) -> set[str] | None:
    try:
        return forced_files(workspace.git) if workspace.has_repository else None
    except GitFailed:
        return None


def _message(reason: str, now: int, base: str, left_out: list[LeftOut]) -> str:
    lines = [f"{LEFT_OUT}: {' '.join(str(item).split())}" for item in left_out[:MAX_LEFT_OUT]]
    if len(left_out) > MAX_LEFT_OUT:
        lines.append(f"{LEFT_OUT}: {len(left_out) - MAX_LEFT_OUT} more")
    reason = " ".join(reason.split())
    trailers = [f"{REASON}: {reason}", f"{AT}: {now}", f"{BASE}: {base}", *lines]
    return f"Snapshot: {reason}\n\n" + "\n".join(trailers) + "\n"
