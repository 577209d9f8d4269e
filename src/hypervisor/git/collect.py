"""The finished work of an attempt, as commits in the hub.

Call it when nothing runs in the workspace any more. Commits of the agent are taken as they are;
what it left uncommitted becomes one more commit. The workspace itself does not change, so this may
be killed and repeated. If HEAD is not on the task's branch, or an operation is unfinished,
either it is clear what the agent's work is, and a note says what was decided, or NotCollected says
why a person must look.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypervisor.core.errors import GitFailed, NotCollected
from hypervisor.git.anchors import bring, head_of, read, tips
from hypervisor.git.hub import Hub
from hypervisor.git.repository import some, submodules_at
from hypervisor.git.snapshot import latest, take, tree_of_files
from hypervisor.git.work_tree import LeftOut, Limits, in_words, is_kept_out
from hypervisor.git.workspace import Workspace

STASHED = "work that was put away with git stash; it is kept"
CONFLICT_MARKERS = (b"<<<<<<< ", b">>>>>>> ")


class ConflictsLeft(NotCollected):
    """The attempt was to resolve conflicts, and their markers are still there."""


@dataclass(frozen=True)
class Collected:
    """`base` is the newest commit of the user's that `head` is built on. `no_change`: the files
    are as they were there. `notes` are decisions worth showing; `left_out` is not in `head`.
    `large` are files that are larger than all of a snapshot may be."""

    head: str
    base: str
    changed_paths: tuple[str, ...]
    no_change: bool
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    large: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tip:
    """Where the agent's work is: its commits, and whether the files in the workspace belong on
    top of them. `merges`: the second parent of a merge that has not been committed. `onto`: the
    commit that the changes of the files are moved to."""

    commit: str
    with_files: bool = True
    merges: str = ""
    onto: str = ""
    notes: tuple[str, ...] = ()


def collect(
    workspace: Workspace,
    task: str,
    attempt: int,
    message: str,
    trailers: Mapping[str, str],
    *,
    now: int,
    known: Sequence[str] = (),
    limits: Limits | None = None,
) -> Collected:
    """Put the work of an attempt into the hub as refs/hv/tasks/<task>/<attempt>. A snapshot is
    taken first, so nothing is lost whatever is decided. `known`: commits of others that the agent
    may have merged, oldest first; they do not count as its changes."""
    limits = limits or Limits()
    hub = workspace.hub
    take(workspace, task, attempt, "finished", now=now, limits=limits)
    tip = _tip(workspace, task, attempt, limits)
    text = message_of(message, {**trailers, **own_trailers(task, attempt)})
    head, left_out = tip.commit, list[LeftOut]()
    if tip.with_files:
        head, left_out = _with_files(workspace, tip, text, limits)
    head, base, notes = on_base(hub, (workspace.base, *known), head, text)
    _check_submodules(workspace, base, head)
    head = _keep(hub, task_ref(task, attempt), head)
    paths = hub.git.names("diff", "--name-only", "-z", "--no-renames", base, head)
    _check_kept_out(workspace, f"{base}..{head}")
    unchanged = hub.tree_of(head) == hub.tree_of(base)
    notes = [*tip.notes, *notes]
    if _has_stash(workspace) and unchanged:
        left_out.append(LeftOut("the stash", STASHED))
    elif _has_stash(workspace):
        notes.append(f"not in its commits: {STASHED}")
    large = large_files(hub, base, head, limits)
    return Collected(head, base, tuple(paths), unchanged, tuple(notes), tuple(left_out), large)


def large_files(hub: Hub, base: str, head: str, limits: Limits) -> tuple[str, ...]:
    """Changed files above the limit, with their sizes. Their commits may be small, compressed."""
    words = ("diff", "--raw", "-z", "--no-renames", "--no-abbrev", "--diff-filter=d", base, head)
    fields = hub.git.names(*words)
    blobs = dict(zip(fields[1::2], (facts.split(" ")[3] for facts in fields[::2]), strict=True))
    stdin = "".join(f"{blob}\n" for blob in blobs.values()).encode()
    lines = hub.git.text("cat-file", "--batch-check=%(objectsize)", stdin=stdin).splitlines()
    sizes = [int(line) if line.isdigit() else 0 for line in lines]  # not those of submodules
    return tuple(
        f"{path} ({in_words(size)})"
        for path, size in zip(blobs, sizes, strict=True)
        if size > limits.total
    )


def _check_kept_out(workspace: Workspace, commits: str) -> None:
    """Files that were brought along may be secret: no commit that is merged may have them."""
    if not workspace.kept_out:
        return
    words = ("log", "--format=", "--name-only", "-z", "--no-renames", "-m", commits, "--")
    paths = {name.strip("\n") for name in workspace.hub.git.names(*words)}
    if secret := sorted(path for path in paths if is_kept_out(path, workspace.kept_out)):
        raise NotCollected(
            f"its commits contain files that were copied into the clone: {some(secret)}"
        )


def _has_stash(workspace: Workspace) -> bool:
    try:
        return "refs/stash" in tips(workspace)
    except GitFailed:
        return False


def task_ref(task: str, attempt: int) -> str:
    return f"refs/hv/tasks/{task}/{attempt}"


def _tip(workspace: Workspace, task: str, attempt: int, limits: Limits) -> Tip:
    try:
        names, head = tips(workspace), head_of(workspace)
    except GitFailed as error:
        return _without_repository(workspace, task, attempt, error)
    if rebase := _rebase(workspace):
        return _before_rebase(workspace, rebase, limits)
    _check_conflicts(workspace)
    own = names.get(f"refs/heads/{workspace.branch}")
    merges = read(os.path.join(workspace.git_dir, "MERGE_HEAD")).split()
    if len(merges) > 1:
        raise NotCollected(f"{workspace.folder}: a merge of several branches was left unfinished")
    present = [commit for commit in (head, own, *merges) if commit]
    _bring_all(workspace, present, limits)
    if merges:
        return Tip(
            head or workspace.base, merges=merges[0], notes=("committed an unfinished merge",)
        )
    return _choose(workspace, head, own)


def _choose(workspace: Workspace, head: str | None, own: str | None) -> Tip:
    """Between what is checked out and the task's own branch, if these differ."""
    hub, branch = workspace.hub, workspace.branch
    if head is None:
        note = f"HEAD was on a branch without commits; the files were committed on {branch}"
        return Tip(own or workspace.base, notes=(note,))
    if own is None or own == head:
        return Tip(head)
    where = _name_of_head(workspace)
    if _is_ancestor(hub, own, head):
        return Tip(head, notes=(f"took the commits of {where}, which contain {branch}",))
    if not _is_agents(hub, workspace.base, own):
        return Tip(head, notes=(f"took the commits of {where}; {branch} has none",))
    if _is_ancestor(hub, head, own) or not _is_agents(hub, workspace.base, head):
        note = f"HEAD was at {where}; took the commits of {branch}"
        return Tip(head, onto=own, notes=(note,))
    raise NotCollected(
        f"there are commits on {branch} and on {where}, and neither contains the other; "
        f"both are kept in {workspace.folder}"
    )


def _with_files(
    workspace: Workspace, tip: Tip, text: str, limits: Limits
) -> tuple[str, list[LeftOut]]:
    """The commits of the tip, with one more for files that were not committed."""
    hub = workspace.hub
    tree = tree_of_files(workspace, tip.commit, limits, to_merge=True)
    left_out = list(tree.left_out)
    is_dirty = tree.id != hub.tree_of(tip.commit)
    if tip.merges:
        return hub.commit(tree.id, [tip.commit, tip.merges], text), left_out
    if not tip.onto:
        return hub.commit(tree.id, [tip.commit], text) if is_dirty else tip.commit, left_out
    if not is_dirty:
        return tip.onto, left_out
    changes = hub.commit(tree.id, [tip.commit], text)
    words = ("merge-tree", "--write-tree", "-z", "--name-only", tip.onto, changes)
    merged = hub.git.run(*words, ok=(0, 1))
    lines = merged.stdout.decode("utf-8", "surrogateescape").split("\0")
    if merged.returncode:
        paths = lines[1 : lines.index("", 1)]
        raise NotCollected(
            f"uncommitted changes on top of {tip.commit[:12]} conflict with {workspace.branch}: "
            f"{some(paths)}"
        )
    return hub.commit(lines[0].strip(), [tip.onto], text), left_out


def on_base(hub: Hub, bases: Sequence[str], head: str, text: str) -> tuple[str, str, list[str]]:
    """The head, the newest of the bases that it is built on, and a note if its history had to be
    replaced."""
    nearest = _merge_base(hub, bases[0], head)
    if not nearest:
        note = f"the history of {head[:12]} has nothing in common with {bases[0][:12]}"
        return (
            hub.commit(hub.tree_of(head), [bases[0]], text),
            bases[0],
            [f"{note}; took its files"],
        )
    for base in bases[1:]:
        newer = _merge_base(hub, base, head)
        if newer and _is_ancestor(hub, nearest, newer):
            nearest = newer
    return head, nearest, []


def _merge_base(hub: Hub, one: str, other: str) -> str:
    return hub.git.run("merge-base", one, other, ok=(0, 1)).stdout.decode().strip()


def _without_repository(workspace: Workspace, task: str, attempt: int, error: GitFailed) -> Tip:
    last = latest(workspace.hub, task, attempt)
    commit = last.head if last else workspace.base
    note = (
        f"the repository of the workspace cannot be read ({error.message}); "
        f"its files were committed on top of {commit[:12]}, the last commit that was saved"
    )
    return Tip(commit, notes=(note,))


def _rebase(workspace: Workspace) -> str:
    """The folder of a rebase that has not ended, or ""."""
    folders = [os.path.join(workspace.git_dir, name) for name in ("rebase-merge", "rebase-apply")]
    return next((folder for folder in folders if os.path.isdir(folder)), "")


def _before_rebase(workspace: Workspace, folder: str, limits: Limits) -> Tip:
    original = read(os.path.join(folder, "orig-head")).strip()
    if not original or os.path.exists(os.path.join(folder, "autostash")):
        raise NotCollected(f"a rebase was left unfinished in {workspace.folder}")
    _bring_all(workspace, [original], limits)
    note = (
        f"a rebase was left unfinished; took the commits from before it ({original[:12]}). "
        f"The files as they were are in the last snapshot"
    )
    return Tip(original, with_files=False, notes=(note,))


def _check_conflicts(workspace: Workspace) -> None:
    """A conflict counts as resolved when its markers are gone, staged or not."""
    left = unresolved(workspace)
    if left:
        raise ConflictsLeft(f"conflicts are not resolved: {some(left)}")


def unresolved(workspace: Workspace) -> list[str]:
    """The files whose conflicts are not resolved."""
    entries = workspace.git.names("ls-files", "-u", "-z")
    paths = sorted({entry.split("\t", 1)[1] for entry in entries})
    return [path for path in paths if _has_markers(os.path.join(workspace.folder, path))]


def _has_markers(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            starts = {line[:8] for line in file}
    except OSError:
        return False
    return starts.issuperset(CONFLICT_MARKERS)


def _check_submodules(workspace: Workspace, base: str, head: str) -> None:
    """Commits of a submodule must be in its own repository before anything can point to them."""
    git = workspace.hub.git
    before = submodules_at(git, base) if workspace.submodules else {}
    after = submodules_at(git, head) if workspace.submodules else {}
    for path in workspace.submodules:
        submodule = workspace.submodule(path)
        if submodule is None or path not in after:
            continue
        new = after[path] != before.get(path) and _is_agents(submodule.hub, "", after[path])
        if new or _is_changed(submodule, after[path]):
            raise NotCollected(
                f"the submodule {path} was changed; commit that in its own repository first. "
                f"It is kept in {submodule.folder}"
            )


def _is_changed(submodule: Workspace, commit: str) -> bool:
    if not submodule.has_repository:
        return False
    tree = tree_of_files(submodule, submodule.base, Limits(), to_merge=True)
    known = submodule.hub.git.commit_of(commit)
    return known is None or tree.id != submodule.hub.tree_of(commit)


def _bring_all(workspace: Workspace, commits: list[str], limits: Limits) -> None:
    _, left_out = bring(workspace, commits, limits)
    if left_out:
        reasons = "; ".join(map(str, left_out))
        raise NotCollected(f"commits could not be collected: {reasons}; see {workspace.folder}")


def _is_ancestor(hub: Hub, older: str, newer: str) -> bool:
    return hub.git.succeeds("merge-base", "--is-ancestor", older, newer)


def _is_agents(hub: Hub, base: str, commit: str) -> bool:
    """Whether a commit is on none of the user's branches."""
    if hub.git.commit_of(commit) is None:
        return True
    exclude = [base] if base else []
    words = ("rev-list", "--max-count=1", commit, "--not", *exclude, "--branches", "--tags")
    return bool(hub.git.text(*words))


def _name_of_head(workspace: Workspace) -> str:
    text = read(os.path.join(workspace.git_dir, "HEAD")).strip()
    return text.removeprefix("ref: refs/heads/") if text.startswith("ref: ") else "a detached HEAD"


def _keep(hub: Hub, ref: str, head: str) -> str:
    """Point the ref to the commit. Repeated after a kill, it stays at the same one if that has
    the same content and parents."""
    old = hub.refs(ref).get(ref)
    if old and _content(hub, old) == _content(hub, head):
        return old
    hub.update_ref(ref, head)
    return head


def _content(hub: Hub, commit: str) -> str:
    return hub.git.text("log", "-1", "--no-show-signature", "--format=%T %P %B", commit)


def own_trailers(task: str, attempt: int) -> dict[str, str]:
    return {"Hypervisor-Task": task, "Hypervisor-Attempt": str(attempt)}


def message_of(message: str, trailers: Mapping[str, str]) -> str:
    lines = [f"{key}: {' '.join(value.split())}" for key, value in trailers.items()]
    return f"{message.strip() or 'Work of an agent'}\n\n" + "\n".join(lines) + "\n"
