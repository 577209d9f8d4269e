"""Branches: named contexts, each with a parent whose findings it also sees."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.core.records import NamedTuple

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.store.database import Database

MAX_ANCESTORS = 50
MAX_LINE_LENGTH = 4_096


class Branch(NamedTuple):
    """A named context. `git` is the git branch it is tied to, if any."""

    name: str
    parent: str = ""
    git: str = ""
    created_at: int = 0


def ancestors(name: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    """The branch, its parent, and so on."""
    names = [name]
    while (up := parents.get(names[-1], "")) and up not in names and len(names) <= MAX_ANCESTORS:
        names.append(up)
    return tuple(names)


def levels(name: str, parents: Mapping[str, str]) -> list[list[str]]:
    """The branch, its children, their children, and so on."""
    children: dict[str, list[str]] = {}
    for child in sorted(parents):
        children.setdefault(parents[child], []).append(child)
    result, seen = [[name]], {name}
    while below := [n for up in result[-1] for n in children.get(up, ()) if n not in seen]:
        result.append(below)
        seen.update(below)
    return result


def parents_of(branches: Iterable[Branch]) -> dict[str, str]:
    return {branch.name: branch.parent for branch in branches}


def branches(hv: Context) -> tuple[Branch, ...]:
    """List all branches that a person, a task or a finding has named."""
    from hypervisor.hive.sql import branches as sql

    return tuple(hv.store.read(sql.branches))


def branch(
    hv: Context,
    name: str,
    parent: str | None = None,
    git: str | None = None,
    now: int | None = None,
) -> Branch:
    """Create a branch, or change its parent or the git branch it is tied to."""
    from hypervisor.hive.sql import branches as sql

    validate.name("the branch", name)
    if parent is not None:
        validate.name("the parent", parent, empty=True)
    if git is not None:
        validate.name("the git branch", git, empty=True)
    return hv.store.write(sql.set_branch, name, parent, git, actor=hv.actor, now=hv.at(now))


def visible_branches(store: Database, branch: str) -> tuple[str, ...]:
    """The branches whose findings are visible from this one, nearest first."""
    from hypervisor.hive.sql import branches as sql

    validate.name("the branch", branch, empty=True)
    return ancestors(branch, store.read(sql.parents)) if branch else ("",)


# The branch of a caller who names none


def task_here(hv: Context, task: str) -> str:
    """The id of the caller's task, "" if this store has no such task."""
    with suppress(NotFound, InvalidInput):
        return hv.resolve(task) if task else ""
    return ""


def branch_here(hv: Context, folder: str, task: str = "") -> str | None:
    """The branch of the caller's task, or the one that is tied to the git branch of the folder;
    None if there is neither."""
    from hypervisor.queue.sql import queries

    if task_id := task_here(hv, task):
        return hv.store.read(queries.task, task_id).branch
    git = git_branch(folder)
    return next((branch.name for branch in branches(hv) if git and branch.git == git), None)


def git_branch(folder: str) -> str:
    """The checked-out git branch of a folder, "" if none, read from git's own files."""
    here = os.path.abspath(folder)
    while True:
        if git_folder := _git_folder(os.path.join(here, ".git")):
            head = _first_line(os.path.join(git_folder, "HEAD"))
            return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else ""
        above = os.path.dirname(here)
        if above == here:
            return ""
        here = above


def _git_folder(path: str) -> str:
    """Git's folder: that path itself, or the target of a worktree's file."""
    if os.path.isdir(path):
        return path
    line = _first_line(path)
    target = line.removeprefix("gitdir: ") if line.startswith("gitdir: ") else ""
    return os.path.join(os.path.dirname(path), target) if target else ""


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline(MAX_LINE_LENGTH).strip()
    except OSError:
        return ""
