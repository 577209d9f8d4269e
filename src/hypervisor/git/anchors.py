"""The commits that a workspace holds, and how they get into the hub.

Objects are read through a repository of ours that borrows them, so that the agent's own
configuration has no effect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from hypervisor.core.errors import GitFailed
from hypervisor.git.files import write_file
from hypervisor.git.hub import Hub
from hypervisor.git.work_tree import LeftOut, Limits, in_words
from hypervisor.git.workspace import Workspace

ID = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")
VIEW = "[core]\n\trepositoryformatversion = {version}\n\tbare = true\n{extensions}"


def head_of(workspace: Workspace) -> str | None:
    """The commit that is checked out; None if there is none. GitFailed: it cannot be read."""
    return workspace.git.commit_of("HEAD") if _is_sound(workspace) else None


def tips(workspace: Workspace) -> dict[str, str]:
    """HEAD, the branches and the newest stash entry, with their commits."""
    _is_sound(workspace)
    lines = workspace.git.run("show-ref", "--head", ok=(0, 1)).stdout.decode("utf-8", "replace")
    pairs = (line.split(" ", 1) for line in lines.splitlines())
    ours = ("HEAD", "refs/heads/", "refs/stash")
    return {ref: commit for commit, ref in pairs if ref.startswith(ours)}


def own_commits(workspace: Workspace) -> list[str]:
    """Every commit in the object store of the workspace itself, not of the hub: also those that
    no ref and no reflog names, like dropped stash entries."""
    view = view_of(workspace)
    stdin = "".join(f"{name}\n" for name in _own_objects(view, workspace)).encode()
    out = view.git.text("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=stdin)
    lines = (line.split(" ") for line in out.splitlines())
    damaged = [name for name, kind in lines if kind == "missing"]
    if damaged:
        raise GitFailed("git cat-file", f"{damaged[0]} in {workspace.git_dir} is damaged")
    return [line.split(" ")[1] for line in out.splitlines() if line.startswith("commit ")]


def _own_objects(view: Hub, workspace: Workspace) -> list[str]:
    top = os.path.join(workspace.git_dir, "objects")
    names = []
    for prefix in os.listdir(top):
        if len(prefix) == 2:
            names += [prefix + rest for rest in os.listdir(os.path.join(top, prefix))]
    names = [name for name in names if ID.fullmatch(name)]  # not the temporary ones
    for pack in _names(os.path.join(top, "pack")):
        if pack.endswith(".idx"):
            with open(os.path.join(top, "pack", pack), "rb") as file:
                lines = view.git.text("show-index", stdin=file.read()).splitlines()
            names += [line.split(" ")[1] for line in lines]
    return names


def bring(
    workspace: Workspace, commits: Iterable[str], limits: Limits
) -> tuple[set[str], list[LeftOut]]:
    """Copy commits into the hub, without refs to them yet. Returns those that are there now, and
    why the others are not: too large, or damaged."""
    hub = workspace.hub
    wanted = list(dict.fromkeys(commits))
    if is_whole(hub, wanted):
        return set(wanted), []
    view = view_of(workspace)
    if len(wanted) > 1 and not _copy(hub, view, workspace.base, wanted, limits):
        return set(wanted), []
    present, left_out = set(), []
    for commit in wanted:
        why = "" if is_whole(hub, [commit]) else _copy(hub, view, workspace.base, [commit], limits)
        if why:
            left_out.append(LeftOut(f"commit {commit[:12]}", why, is_commit=True))
        else:
            present.add(commit)
    return present, left_out


def is_whole(hub: Hub, commits: list[str]) -> bool:
    """Whether commits are in the hub with all their objects. A commit that no ref leads to may be
    incomplete, if git was killed while it copied."""
    words = ("rev-list", "--objects", "--quiet", *commits, "--not", "--all")
    return not commits or hub.git.run(*words, ok=(0, 128)).returncode == 0


def _copy(hub: Hub, view: Hub, base: str, commits: list[str], limits: Limits) -> str:
    """Why it cannot be done, or ""."""
    exclude = ["--not", base] if base else []
    try:
        words = ("rev-list", "--objects", "--disk-usage", *commits, *exclude)
        size = int(view.git.text(*words))
        if size > limits.total:
            return f"{in_words(size)}, more than {in_words(limits.total)}; only in the workspace"
        hub.fetch(view.path, [(commit, "") for commit in commits])
    except GitFailed as error:
        return f"cannot be read: {error.message}"
    return ""


def view_of(workspace: Workspace) -> Hub:
    """A repository without refs that borrows the agent's objects."""
    path = os.path.join(workspace.state, "view.git")
    os.makedirs(os.path.join(path, "refs"), exist_ok=True)
    os.makedirs(os.path.join(path, "objects", "info"), exist_ok=True)
    sha256 = len(workspace.base) == 64
    extensions = "[extensions]\n\tobjectFormat = sha256\n" if sha256 else ""
    files = {
        "HEAD": "ref: refs/heads/none\n",
        "config": VIEW.format(version=int(sha256), extensions=extensions),
        "objects/info/alternates": os.path.join(workspace.git_dir, "objects") + "\n",
    }
    shallow = read(os.path.join(workspace.git_dir, "shallow"))
    if shallow:
        files["shallow"] = shallow
    for name, text in files.items():
        write_file(os.path.join(path, name), text)
    return Hub(path)


def _is_sound(workspace: Workspace) -> bool:
    if not workspace.has_repository:
        raise GitFailed("git", f"{workspace.git_dir} is gone or not a folder")
    return True


def _names(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


def read(path: str) -> str:
    """OSError if it exists and cannot be read: what it names must not be forgotten."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return ""
