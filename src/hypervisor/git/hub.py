"""The hub of a repository: a bare clone of it in our data folder, which all workspaces share.

Objects are only ever added to it, never removed: workspaces borrow them. The user's branches and
tags are copied into it by fetch; our own refs lie under refs/hv/. What git writes here is synced to
disk before a ref points to it. Every step may be interrupted and repeated.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256

from hypervisor.core.errors import GitFailed, InvalidInput, WorkspaceError
from hypervisor.core.private_folders import make_private_folders
from hypervisor.git.command import Git
from hypervisor.git.files import flush_file_system, locked, write_file
from hypervisor.git.repository import Repository, discover, submodules_at
from hypervisor.git.settings import ATTRIBUTES, EXCLUDE, SETTINGS, carry_over
from hypervisor.git.work_tree import Files, LeftOut, absent_files, forced_files, write_tree

TRIES = 5
UNCOMMITTED = "Uncommitted changes"  # the message of such a commit
STALE_LOCK = 30.0  # seconds; git holds the lock of a ref for milliseconds
USERS_REFS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
CONFIG = f"""\
[core]
\tfsync = committed
\tfsyncMethod = batch
\tlogAllRefUpdates = false
[gc]
\tauto = 0
\tpruneExpire = never
\tworktreePruneExpire = never
[maintenance]
\tauto = false
[receive]
\tdenyDeletes = true
\tdenyNonFastForwards = true
[include]
\tpath = {SETTINGS}
"""
REFUSAL = """\
#!/bin/sh
echo "Pushing is not possible here. Commit on your branch: your commits are collected." >&2
exit 1
"""


@dataclass(frozen=True)
class Base:
    """The commit that a batch starts from, and files of the checkout that are not in it."""

    commit: str
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class Hub:
    """`repository` is the one it was made from, if known: reading what is already here does
    not need it."""

    path: str
    repository: Repository | None = field(default=None, compare=False)

    @property
    def git(self) -> Git:
        return Git(self.path, env={"GIT_DIR": self.path})

    def submodule_path(self, path: str) -> str:
        """Where the hub of a submodule lies, whether it exists or not."""
        return os.path.join(self.path, "modules", f"{as_file_name(path)}.git")

    def submodule(self, path: str) -> Hub | None:
        """The hub of a submodule, if the user's checkout has it initialized."""
        folder = self.submodule_path(path)
        return Hub(folder) if os.path.isdir(folder) else None

    def resolve(self, base: str = "HEAD") -> str:
        """The commit that a revision of the user's repository names, present in the hub."""
        repository = self._users_repository()
        commit = repository.git().commit_of(base)
        if commit is None:
            raise InvalidInput(f"{repository.root} has no commit {base!r}")
        if self.git.commit_of(commit) is None:
            self.fetch(repository.common_dir, [(commit, base_ref(commit))])
        return commit

    def keep_base(self, commit: str) -> None:
        """Keep a commit that workspaces start from, whatever the user does with their branches."""
        self.update_ref(base_ref(commit), commit)

    def include_dirty(self, repository: Repository) -> Base:
        """A commit of what is in the user's checkout, uncommitted changes included; without any
        it is the commit that is checked out."""
        git = repository.git()
        head = self.resolve("HEAD") if git.commit_of("HEAD") else None
        index = os.path.join(self.path, f"index-{uuid.uuid4().hex}")
        files = Files(
            repository.root,
            self.path,
            index,
            head,
            absent=lambda: absent_files(git),
            forced=lambda: forced_files(repository.git(with_user_config=True)),
        )
        try:
            tree = write_tree(files)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(index)
        commit = head
        if head is None or tree.id != self.tree_of(head):
            commit = self.commit(tree.id, [head] if head else [], UNCOMMITTED)
        return Base(commit or "", tree.left_out)

    def tree_of(self, commit: str) -> str:
        return self.git.text("rev-parse", "--verify", f"{commit}^{{tree}}")

    def commit(self, tree: str, parents: Sequence[str], message: str) -> str:
        """A new commit, which no ref names yet."""
        words = [word for parent in parents for word in ("-p", parent)]
        return self.git.text("commit-tree", *words, tree, stdin=message.encode("utf-8", "replace"))

    def fetch(self, source: str, pairs: list[tuple[str, str]]) -> None:
        """Copy commits of another repository of this machine here, as these refs; as none if it
        is empty."""
        refspecs = [f"+{commit}:{ref}" if ref else commit for commit, ref in pairs]
        if refspecs:
            self._fetch(source, *refspecs)

    def update_ref(self, ref: str, commit: str, old: str | None = None) -> None:
        """Point a ref to a commit; with `old` only if it points there now ("": it is new)."""
        expected = [] if old is None else [old or "0" * len(commit)]
        self._locking("update-ref", "--no-deref", ref, commit, *expected)

    def delete_refs(self, refs: list[str]) -> None:
        for ref in refs:
            self._locking("update-ref", "--no-deref", "-d", ref)

    def refs(self, *prefixes: str) -> dict[str, str]:
        """Refs below these prefixes, with the objects they name."""
        lines = self.git.text("for-each-ref", "--format=%(objectname) %(refname)", *prefixes)
        pairs = (line.split(" ", 1) for line in lines.splitlines())
        return {ref: commit for commit, ref in pairs}

    def _fetch(self, source: str, *refspecs: str, prune: bool = False) -> None:
        options = ["--prune"] if prune else []
        words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow")
        self._locking(*words, *options, "--no-recurse-submodules", source, *refspecs)

    def _locking(self, *words: str) -> None:
        """Run git; if a killed git has left a lock behind, without that lock."""
        for attempt in range(TRIES):
            try:
                self.git.run(*words)
                return
            except GitFailed as error:
                if ".lock'" not in error.message or attempt == TRIES - 1:
                    raise
            time.sleep(0.1 * 2**attempt)
            clear_stale_locks(self.path)

    def _users_repository(self) -> Repository:
        if self.repository is None:
            raise WorkspaceError(f"{self.path} was opened without the repository it belongs to")
        return self.repository


def as_file_name(path: str) -> str:
    return path.replace("%", "%25").replace("/", "%2F")


def base_ref(commit: str) -> str:
    return f"refs/hv/bases/{commit}"


def hub_path(data_folder: str, repository: Repository) -> str:
    """Where the hub of a repository lies: the same for all its work trees."""
    identity = sha256(os.fsencode(os.path.realpath(repository.common_dir))).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", repository.name).strip("-.")[:40] or "repository"
    return os.path.join(data_folder, "git", f"{name}-{identity}.git")


def open_hub(data_folder: str, repository: Repository) -> Hub:
    """The hub of a repository, created if necessary, with the user's current branches and
    tags."""
    return _open(hub_path(data_folder, repository), repository)


def _open(path: str, repository: Repository) -> Hub:
    make_private_folders(os.path.dirname(path))
    with locked(f"{path}.lock"):
        if not os.path.isdir(path):
            _build(path, repository)
        clear_stale_locks(path)
        hub = Hub(path, repository)
        carry_over(repository, path)
        hub._fetch(repository.common_dir, *USERS_REFS, prune=True)
        for submodule in _submodules(repository):
            _open(hub.submodule_path(os.path.relpath(submodule.root, repository.root)), submodule)
    return hub


def _submodules(repository: Repository) -> list[Repository]:
    """Those of the commit that is checked out, as far as they are initialized."""
    commit = repository.git().commit_of("HEAD")
    if repository.bare or commit is None:
        return []
    folders = [
        os.path.join(repository.root, path) for path in submodules_at(repository.git(), commit)
    ]
    present = [folder for folder in folders if os.path.lexists(os.path.join(folder, ".git"))]
    repositories = [discover(folder) for folder in present]
    return [other for other in repositories if other is not None and other.root != repository.root]


def clear_stale_locks(path: str, older_than: float | None = None) -> None:
    """Remove the lock files that a killed git has left in a hub; `older_than` is in seconds."""
    before = time.time() - (STALE_LOCK if older_than is None else older_than)
    candidates = [os.path.join(path, name) for name in ("packed-refs", "config", "shallow", "HEAD")]
    for folder, _, names in os.walk(os.path.join(path, "refs")):
        candidates += [os.path.join(folder, name.removesuffix(".lock")) for name in names]
    for candidate in candidates:
        with suppress(OSError):
            if os.stat(f"{candidate}.lock").st_mtime < before:
                os.unlink(f"{candidate}.lock")


def _build(path: str, repository: Repository) -> None:
    """Under a name of its own first: a killed process leaves nothing that looks like a hub, and a
    git that outlives it writes to an unused folder."""
    parent, name = os.path.split(path)
    for leftover in os.listdir(parent):
        if leftover.startswith(f"{name}.new-"):
            shutil.rmtree(os.path.join(parent, leftover), ignore_errors=True)
    new = f"{path}.new-{uuid.uuid4().hex}"
    _clone(repository, new)
    with open(os.path.join(new, "config"), "a", encoding="utf-8") as file:
        file.write(CONFIG)
    _refuse_pushes(new)
    os.makedirs(os.path.join(new, "info"), exist_ok=True)
    for file_name in (SETTINGS, EXCLUDE, ATTRIBUTES):
        write_file(os.path.join(new, file_name), "")
    flush_file_system(new)
    os.rename(new, path)


def _clone(repository: Repository, target: str) -> None:
    """With hard links to the user's objects, unless these lie elsewhere in part, or are being
    repacked at this moment."""
    words = ("clone", "--quiet", "--bare", "--no-tags", "--template=")
    borrowed = os.path.join(repository.common_dir, "objects", "info", "alternates")
    git = Git(os.path.dirname(target))
    ways = ["--no-local"] if os.path.exists(borrowed) else ["--local", "--local", "--no-local"]
    for number, way in enumerate(ways, 1):
        try:
            git.run(*words, way, "--", repository.common_dir, target)
            break
        except GitFailed:
            shutil.rmtree(target, ignore_errors=True)
            if number == len(ways):
                raise
    Git(target, env={"GIT_DIR": target}).run("remote", "remove", "origin")


def _refuse_pushes(path: str) -> None:
    hook = os.path.join(path, "hooks", "pre-receive")
    os.makedirs(os.path.dirname(hook), exist_ok=True)
    with open(hook, "w", encoding="utf-8") as file:
        file.write(REFUSAL)
    os.chmod(hook, 0o755)
