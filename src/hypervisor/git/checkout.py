"""The user's checkouts: which branches are checked out, and how to fast-forward one without losing
anything."""

from __future__ import annotations

import os

from hypervisor.core.errors import GitFailed
from hypervisor.git.command import Git

UNFINISHED = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisection",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
}
MAX_NAMED = 5


def branches_in_use(git: Git) -> dict[str, str]:
    """The refs that are checked out in a work tree, or being rebased in one, with its folder."""
    used, folder = {}, ""
    for field in git.text("worktree", "list", "--porcelain", "-z").split("\0"):
        name, _, value = field.partition(" ")
        if name == "worktree":
            folder = value
            if ref := _rebased(folder):
                used[ref] = folder
        elif name == "branch":
            used[value] = folder
    return used


def fast_forward(folder: str, ref: str, old: str, new: str) -> str:
    """Move a clean checkout of `ref` from `old` to `new`; or say why not. Files that git does not
    know are never overwritten, nor are those that it ignores."""
    git = Git(folder, network=True)  # with the user's filters and line endings
    if unfinished := _unfinished(folder):
        return f"{unfinished} is in progress in {folder}"
    if dirty := _dirty(git):
        if not _half_done(git, new):
            return f"{folder} has uncommitted changes ({_some(dirty)})"
        git.run("update-ref", "-m", "hv: land", ref, new, old)  # the rest was done before a kill
        return ""
    if in_the_way := _in_the_way(git, old, new):
        return f"files that git does not track would be overwritten ({_some(in_the_way)})"
    options = ("--ff-only", "--no-overwrite-ignore", "--no-autostash", "--no-verify-signatures")
    try:
        git.run("read-tree", "--dry-run", "-m", "-u", old, new)  # a merge would write ORIG_HEAD
        git.run("merge", "--quiet", "--no-stat", *options, new)
    except GitFailed as error:
        return " ".join(error.message.split())
    head = git.commit_of("HEAD")
    return "" if head == new else f"git merge left {folder} at {head}"


def _in_the_way(git: Git, old: str, new: str) -> list[str]:
    """Files that exist, ignored or not, where `new` has a file that `old` does not have."""
    words = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=A", old, new)
    return [path for path in git.names(*words) if os.path.lexists(os.path.join(git.folder, path))]


def _half_done(git: Git, new: str) -> bool:
    """Whether files and index are those of `new` already, and only the branch is not."""
    same = ("diff-index", "--quiet", "--cached", new, "--")
    return git.succeeds(*same) and git.succeeds("diff-files", "--quiet")


def _dirty(git: Git) -> list[str]:
    words = ("status", "--porcelain=v1", "-z", "--untracked-files=no", "--no-renames")
    return [field[3:] for field in git.names(*words)]


def _unfinished(folder: str) -> str:
    git_dir = _git_dir(folder)
    return next(
        (what for name, what in UNFINISHED.items() if os.path.exists(os.path.join(git_dir, name))),
        "",
    )


def _rebased(folder: str) -> str:
    """The branch that a rebase in progress will move: HEAD is detached during the rebase."""
    for name in ("rebase-merge", "rebase-apply"):
        try:
            with open(os.path.join(_git_dir(folder), name, "head-name"), encoding="utf-8") as file:
                return file.read().strip()
        except (OSError, GitFailed):
            continue
    return ""


def _git_dir(folder: str) -> str:
    return Git(folder).text("rev-parse", "--absolute-git-dir")


def _some(names: list[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
