"""Where a stack starts: at the target, together with what the batch started from.

A branch of ours may lack commits, or uncommitted changes of the user, that a later run starts from.
They come in by a merge commit of their own. Otherwise a squash would make them part of a task's
commit, and a rebase would leave them out.
"""

from __future__ import annotations

from hypervisor.git.command import IDENTITY, Git
from hypervisor.git.hub import UNCOMMITTED
from hypervisor.git.stack import Conflict, merge_commit, merged_tree, tree_of


def starting_point(hub: Git, tip: str, base: str, target: str) -> str:
    """A commit with both; the tip, if it has the changes already or conflicts with them: then each
    task of the batch does."""
    if _contains(hub, tip, base):
        return tip
    if _contains(hub, base, tip):
        return base
    tree = merged_tree(hub, tip, base)
    if isinstance(tree, Conflict) and (last := _last_uncommitted(hub, tip, base)):
        tree = merged_tree(hub, tip, base, common=last)
    if isinstance(tree, Conflict) or tree == tree_of(hub, tip):
        return tip
    is_dirty = _subject(hub, base) == UNCOMMITTED
    what = "uncommitted changes" if is_dirty else f"commit {base[:12]}"
    return merge_commit(hub, tree, tip, base, f"Merge {what} into {target}")


def _last_uncommitted(hub: Git, tip: str, base: str) -> str:
    """What the user's uncommitted changes were in the last run, if `base` has newer ones."""
    if _subject(hub, base) != UNCOMMITTED:
        return ""
    ours = f"--author=<{IDENTITY['GIT_AUTHOR_EMAIL']}>"
    words = ("rev-list", "--max-count=1", "--topo-order", ours, f"--grep=^{UNCOMMITTED}$")
    return hub.text(*words, tip, f"^{base}")


def _subject(hub: Git, commit: str) -> str:
    return hub.text("log", "-1", "--format=%s", commit, "--")


def _contains(hub: Git, newer: str, older: str) -> bool:
    return hub.succeeds("merge-base", "--is-ancestor", older, newer)
