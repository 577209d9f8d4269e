"""Conflicts: what the next attempt, or a person, needs to resolve one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core.errors import WorkspaceError
from hypervisor.core.records import NamedTuple
from hypervisor.git.clean_text import clean_text
from hypervisor.git.removal import save_commits
from hypervisor.git.snapshot import take, tree_of_files
from hypervisor.git.work_tree import Limits
from hypervisor.git.workspace import merge_anew

if TYPE_CHECKING:
    from hypervisor.git.hub import Hub
    from hypervisor.git.sql import EntryRow
    from hypervisor.git.workspace import Workspace

MAX_NAMED = 20
MAX_DIFF = 4_000  # characters, of each side
DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color")


class Prepared(NamedTuple):
    """A workspace with both sides merged. `conflicts` are the files to be resolved."""

    folder: str
    base: str
    ours: str
    theirs: str
    conflicts: tuple[str, ...]


def conflict_text(hub: Hub, row: EntryRow, tip: str, paths: tuple[str, ...], message: str) -> str:
    """What conflicts, in one line, then both diffs since the commit they have in common."""
    named = ", ".join(paths[:MAX_NAMED]) or "no file"
    found = hub.git.run("merge-base", row.head, tip, ok=(0, 1)).stdout.decode().strip()
    base = found or row.base
    lines = [f"conflict in {named} with {tip[:12]}", message, f"Common base: {base}"]
    for title, side in (("This task's change", row.head), ("The other change", tip)):
        lines += [f"{title} ({side[:12]}):", _diff(hub, base, side, paths)]
    return clean_text("\n".join(lines).strip())


def _diff(hub: Hub, base: str, side: str, paths: tuple[str, ...]) -> str:
    text = hub.git.text(*DIFF, base, side, "--", *paths[:MAX_NAMED]) if paths else ""
    return text[:MAX_DIFF] + ("\n…" if len(text) > MAX_DIFF else "")


def bring_together(
    workspace: Workspace, task: str, attempt: int, tip: str, *, now: int
) -> Prepared:
    """Merge `tip` into the work of an attempt, conflicts and all, with a new repository: the old
    one has the agent's configuration and hooks. Everything in it is saved first."""
    limits, hub = Limits(), workspace.hub
    saved = take(workspace, task, attempt, "before a merge", now=now)
    if reasons := save_commits(workspace, task, attempt, limits):
        raise WorkspaceError("; ".join(reasons))
    head = saved.head
    tree = tree_of_files(workspace, head, limits, to_merge=True).id
    if tree != hub.tree_of(head):
        head = hub.commit(tree, [head], f"Work of attempt {attempt}")
    merge_anew(workspace, head, tip)
    entries = workspace.git.names("ls-files", "-u", "-z")
    conflicts = sorted({entry.split("\t", 1)[1] for entry in entries})
    found = hub.git.run("merge-base", head, tip, ok=(0, 1)).stdout.decode().strip()
    return Prepared(workspace.folder, found or workspace.base, head, tip, tuple(conflicts))
