"""Where somebody works: for which task, on which git branch (read from git's own files), and so
for which branch of ours."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.hive.sql import branches
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

LONGEST = 4_096


def task_here(hv: Context, task: str) -> str:
    """The task that somebody runs for, "" if it is none of this store."""
    with suppress(NotFound, InvalidInput):
        return hv.resolve(task) if task else ""
    return ""


def branch_here(hv: Context, folder: str, task: str = "") -> str | None:
    """The branch that somebody means who names none: that of the task they work on, else the
    one that is tied to the git branch of the folder. None: there is neither."""
    if found := task_here(hv, task):
        return hv.store.read(queries.task, found).branch
    git = git_branch(folder)
    return next(
        (each.name for each in hv.store.read(branches.branches) if git and each.git == git), None
    )


def git_branch(folder: str) -> str:
    """The checked-out branch of the checkout around a folder, "" if there is none."""
    here = os.path.abspath(folder)
    while True:
        found = _git_folder(os.path.join(here, ".git"))
        if found:
            head = _first_line(os.path.join(found, "HEAD"))
            return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else ""
        above = os.path.dirname(here)
        if above == here:
            return ""
        here = above


def _git_folder(path: str) -> str:
    """Git's folder: that path itself, or where the file of a worktree points to."""
    if os.path.isdir(path):
        return path
    line = _first_line(path)
    target = line.removeprefix("gitdir: ") if line.startswith("gitdir: ") else ""
    return os.path.join(os.path.dirname(path), target) if target else ""


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline(LONGEST).strip()
    except OSError:
        return ""
