"""The workspace of a task: a repository of its own that borrows the objects of the hub.

It has its own index, stash, configuration and reflog, so nothing that an agent does in it reaches
another workspace or the user's repository. It cannot push. Our own records about it are
outside of it, where agents do not work: `<parent>/.state/<name>/`.

A workspace is built under another name and renamed when it is whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from hypervisor.core.errors import GitFailed, WorkspaceError
from hypervisor.core.private_folders import make_private_folders
from hypervisor.git.command import Git, check_ref_name
from hypervisor.git.files import locked, write_file
from hypervisor.git.hub import Hub, as_file_name
from hypervisor.git.repository import submodules_at
from hypervisor.git.settings import ATTRIBUTES, EXCLUDE, SETTINGS, quoted

NO_PUSH = "hv-no-push:"
STATE = ".state"
KEPT_OUT = "kept-out"
CONFIG = """\
[core]
\trepositoryformatversion = {version}
\tbare = false
\tlogAllRefUpdates = true
{extensions}[remote "origin"]
\turl = {hub}
\tpushurl = {no_push}
\tfetch = +refs/heads/*:refs/remotes/origin/*
\ttagOpt = --no-tags
[push]
\tdefault = nothing
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""
SPARSE = """\
[core]
\tsparseCheckout = true
\tsparseCheckoutCone = true
[index]
\tsparse = false
"""


@dataclass(frozen=True)
class Workspace:
    """`submodules` are paths of other repositories in it, each a workspace of its own hub.
    `inside`: the workspace that this one is a submodule of."""

    folder: str
    hub: Hub
    branch: str
    base: str
    sparse: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    inside: Workspace | None = field(default=None, compare=False)

    @property
    def git(self) -> Git:
        """Git that reads the agent's repository. Refs, index and objects are the agent's, but the
        configuration, hooks and attributes are ours: nothing of the agent's is ever executed."""
        env = {"GIT_DIR": self._reader(), "GIT_WORK_TREE": self.folder}
        index = os.path.join(self.git_dir, "index")
        return Git(self.folder, env={**env, "GIT_INDEX_FILE": index, "GIT_ALLOW_PROTOCOL": "none"})

    def _reader(self) -> str:
        """A repository of ours that shows what is in the agent's. GitFailed: that is damaged."""
        path = os.path.join(self.state, "reader.git")
        objects = os.path.join(path, "objects", "info")
        os.makedirs(objects, exist_ok=True)
        os.makedirs(os.path.join(path, "info"), exist_ok=True)
        files = {
            "HEAD": _read_small(os.path.join(self.git_dir, "HEAD")),
            "config": _config(self.hub, self.base, self.sparse),
            EXCLUDE: _copy_of(self.hub, EXCLUDE),
            ATTRIBUTES: _copy_of(self.hub, ATTRIBUTES),
            "objects/info/alternates": f"{_alternate(os.path.join(self.git_dir, 'objects'))}\n",
            "shallow": _copy_of(self.hub, "shallow"),
        }
        for name, text in files.items():
            if text:
                _replace(os.path.join(path, name), text)
        links = ["refs", "packed-refs", *_shared_indexes(self.git_dir)]
        for name in links:
            link = os.path.join(path, name)
            if not os.path.islink(link):
                with suppress(FileExistsError):
                    os.symlink(os.path.join(self.git_dir, name), link)
        return path

    @property
    def git_dir(self) -> str:
        return os.path.join(self.folder, ".git")

    @property
    def has_repository(self) -> bool:
        """Whether its .git is still a folder, as it was made."""
        return os.path.isdir(self.git_dir) and not os.path.islink(self.git_dir)

    @property
    def state(self) -> str:
        """What we know about it, outside of the folder that the agent works in."""
        if self.inside is None:
            return state_folder(self.folder)
        path = os.path.relpath(self.folder, self.inside.folder)
        return os.path.join(self.inside.state, "modules", as_file_name(path))

    @property
    def index(self) -> str:
        """Our own index of the files, not the agent's."""
        return os.path.join(self.state, "index")

    @property
    def kept_out(self) -> frozenset[str]:
        """Files and folders that were brought along: never part of its work."""
        try:
            with open(os.path.join(self.state, KEPT_OUT), encoding="utf-8") as file:
                return frozenset(json.load(file))
        except FileNotFoundError:
            return frozenset()

    def keep_out(self, paths: Sequence[str]) -> None:
        write_file(os.path.join(self.state, KEPT_OUT), json.dumps(sorted({*self.kept_out, *paths})))

    @property
    def environment(self) -> dict[str, str]:
        """For the programs that work in it: git never looks for a repository above it, and never
        asks for a password."""
        above = os.path.dirname(self.folder)
        return {"GIT_CEILING_DIRECTORIES": above, "GIT_TERMINAL_PROMPT": "0"}

    def submodule(self, path: str) -> Workspace | None:
        """The workspace inside this one, at the path of a submodule."""
        hub = self.hub.submodule(path)
        commit = submodules_at(self.hub.git, self.base).get(path)
        if hub is None or commit is None:
            return None
        folder = os.path.join(self.folder, path)
        return Workspace(folder, hub, self.branch, commit, inside=self)


def create(
    hub: Hub, folder: str, branch: str, base_commit: str, sparse: Sequence[str] = ()
) -> Workspace:
    """Make a workspace with a branch at a commit of the hub. If the same one exists already, it is
    left as it is. `sparse`: folders to check out, instead of everything."""
    check_ref_name(branch)
    state = state_folder(folder)
    make_private_folders(state)
    with locked(os.path.join(state, "lock")):
        existing = open_existing(folder)
        if existing is None:
            return _create(hub, folder, branch, base_commit, tuple(sparse))
    if (existing.hub, existing.branch, existing.base) != (hub, branch, base_commit):
        raise WorkspaceError(f"{folder} already exists, with other work in it")
    return existing


def open_existing(folder: str) -> Workspace | None:
    """The workspace in a folder; None if there is none. WorkspaceError if it is unclear which
    repository it belongs to."""
    if not os.path.isdir(folder):
        return None
    path = os.path.join(state_folder(folder), "workspace.json")
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            facts = json.load(file)
        return Workspace(
            folder,
            Hub(facts["hub"]),
            facts["branch"],
            facts["base"],
            tuple(facts["sparse"]),
            tuple(facts["submodules"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        raise WorkspaceError(f"{folder} is not a workspace: {path} is missing or damaged") from None


def state_folder(folder: str) -> str:
    parent, name = os.path.split(folder)
    return os.path.join(parent, STATE, name)


def _create(hub: Hub, folder: str, branch: str, base: str, sparse: tuple[str, ...]) -> Workspace:
    state = state_folder(folder)
    _remove_unfinished(state)
    new = os.path.join(state, f"new-{uuid.uuid4().hex}")
    git_dir = os.path.join(new, ".git")
    _write_repository(hub, git_dir, branch, base, sparse)
    _check_out(new, git_dir, base)
    submodules = check_out_submodules(hub, new, branch, base)
    facts = {
        "hub": hub.path,
        "branch": branch,
        "base": base,
        "sparse": sparse,
        "submodules": submodules,
    }
    shutil.copy2(os.path.join(git_dir, "index"), os.path.join(state, "index"))
    write_file(os.path.join(state, "workspace.json"), json.dumps(facts))
    os.rename(new, folder)
    return Workspace(folder, hub, branch, base, sparse, submodules)


def merge_anew(workspace: Workspace, commit: str, tip: str) -> None:
    """Replace the agent's repository by a new one with its work (`commit`) on the branch, and merge
    `tip` into it, conflicts and all. Everything in the old one must have been saved."""
    _remove_unfinished(workspace.state)
    new = os.path.join(workspace.state, f"new-{uuid.uuid4().hex}")
    git_dir = os.path.join(new, ".git")
    _write_repository(workspace.hub, git_dir, workspace.branch, commit, workspace.sparse)
    git = Git(workspace.folder, env={"GIT_DIR": git_dir, "GIT_WORK_TREE": workspace.folder})
    git.run("read-tree", "-m", commit)  # the files are as in the commit
    git.run("update-index", "-q", "--refresh", ok=(0, 1))
    alone = ("-c", "submodule.recurse=false", "-c", "diff.ignoreSubmodules=all")
    git.run(*alone, "merge", "--no-edit", "--quiet", tip, ok=(0, 1))
    if os.path.lexists(workspace.git_dir):
        os.rename(workspace.git_dir, os.path.join(new, "old"))
    os.rename(git_dir, workspace.git_dir)
    _remove_unfinished(workspace.state)


def _read_small(path: str) -> str:
    """A file of the agent's; GitFailed if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1000)
    except OSError as error:
        raise GitFailed("git", f"{path}: {error.strerror}") from None


def _replace(path: str, text: str) -> None:
    """Several processes may do this at once; losing it does no harm."""
    spare = f"{path}.{uuid.uuid4().hex}"
    with open(spare, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.replace(spare, path)


def _shared_indexes(git_dir: str) -> list[str]:
    """Parts of a split index (core.splitIndex)."""
    if not os.path.isdir(git_dir):
        return []
    return [name for name in os.listdir(git_dir) if name.startswith("sharedindex.")]


def _remove_unfinished(state: str) -> None:
    for name in os.listdir(state):
        if name.startswith("new-"):
            shutil.rmtree(os.path.join(state, name), ignore_errors=True)


def _write_repository(
    hub: Hub, git_dir: str, branch: str, base: str, sparse: tuple[str, ...]
) -> None:
    """As `git clone --shared` does, with fewer programs started, and from shallow hubs too."""
    files = {
        "HEAD": f"ref: refs/heads/{branch}\n",
        "config": _config(hub, base, sparse),
        "objects/info/alternates": f"{_alternate(os.path.join(hub.path, 'objects'))}\n",
        f"refs/heads/{branch}": f"{base}\n",
        "packed-refs": _packed_refs(hub),
        EXCLUDE: _copy_of(hub, EXCLUDE),
        ATTRIBUTES: _copy_of(hub, ATTRIBUTES),
    }
    if shallow := _copy_of(hub, "shallow"):
        files["shallow"] = shallow
    if sparse:
        files["info/sparse-checkout"] = _cone(sparse)
    for name, text in files.items():
        path = os.path.join(git_dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)


def _config(hub: Hub, base: str, sparse: tuple[str, ...]) -> str:
    sha256 = len(base) == 64
    text = CONFIG.format(
        version=1 if sha256 else 0,
        extensions="[extensions]\n\tobjectFormat = sha256\n" if sha256 else "",
        hub=quoted(hub.path),
        no_push=NO_PUSH,
    )
    return text + _copy_of(hub, SETTINGS) + (SPARSE if sparse else "")


def _packed_refs(hub: Hub) -> str:
    """The user's branches as those of `origin`, and their tags."""
    refs = {
        ref.replace("refs/heads/", "refs/remotes/origin/", 1): identifier
        for ref, identifier in hub.refs("refs/heads", "refs/tags").items()
    }
    lines = [f"{refs[ref]} {ref}\n" for ref in sorted(refs, key=os.fsencode)]
    return "".join(["# pack-refs with: sorted\n", *lines])


def _alternate(path: str) -> str:
    """A line of objects/info/alternates, where a leading quote or # would be special."""
    return quoted(path) if "\n" in path or path.startswith(('"', "#")) else path


def _cone(folders: tuple[str, ...]) -> str:
    """The patterns that `git sparse-checkout set` writes for these folders."""
    wanted = sorted({re.sub(r"([*?\[\\])", r"\\\1", folder.strip("/")) for folder in folders})
    lines = ["/*", "!/*/"]
    for folder in wanted:
        parts = folder.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts))]
        if folder and not set(above) & set(wanted):
            lines += [line for name in above for line in (f"/{name}/", f"!/{name}/*/")]
            lines.append(f"/{folder}/")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def is_in_cone(path: str, folders: Sequence[str], *, is_folder: bool) -> bool:
    """Whether a sparse checkout of these folders has a path: what is in them, and the files beside
    them and above."""
    wanted = [folder.strip("/") for folder in folders]
    if any(f"{path}/".startswith(f"{folder}/") for folder in wanted if folder):
        return True
    parent = path if is_folder else os.path.dirname(path)
    return not parent or any(folder.startswith(f"{parent}/") for folder in wanted)


def _copy_of(hub: Hub, name: str) -> str:
    path = os.path.join(hub.path, name)
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _check_out(folder: str, git_dir: str, commit: str) -> None:
    git = Git(folder, env={"GIT_DIR": git_dir, "GIT_WORK_TREE": folder})
    git.run("read-tree", "--reset", "-u", commit)


def check_out_submodules(hub: Hub, folder: str, branch: str, base: str) -> tuple[str, ...]:
    """Submodules that the user's checkout has initialized, from hubs of their own."""
    present = []
    if os.path.isdir(os.path.join(hub.path, "modules")):
        for path, commit in submodules_at(hub.git, base).items():
            submodule = hub.submodule(path)
            if submodule is not None and submodule.git.commit_of(commit) is not None:
                top = os.path.join(folder, path)
                git_dir = os.path.join(top, ".git")
                _write_repository(submodule, git_dir, branch, commit, ())
                _check_out(top, git_dir, commit)
                check_out_submodules(submodule, top, branch, commit)
                present.append(path)
    return tuple(present)
