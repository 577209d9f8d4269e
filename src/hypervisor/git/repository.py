"""The user's repository: where it is, and what to check before work starts.

It is only ever read. Optional locks are off, so not even its index is refreshed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass

from hypervisor.core.errors import GitFailed, InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.git.command import Git

ATTRIBUTES = ":(glob)**/.gitattributes"
FILTER = re.compile(rb"\bfilter=([^\s]+)")
MAX_NAMED = 5


@dataclass(frozen=True)
class Repository:
    """`root` is the top of the work tree, or the repository itself if it is bare. `common_dir` is
    the same for all work trees of a repository; `git_dir` is that of this one."""

    root: str
    git_dir: str
    common_dir: str
    bare: bool = False
    shallow: bool = False

    @property
    def name(self) -> str:
        above, last = os.path.split(self.common_dir)
        folder = above if last == ".git" else self.common_dir
        return os.path.basename(folder).removesuffix(".git") or "repository"

    @property
    def is_linked(self) -> bool:
        """Whether `root` is a linked work tree (`git worktree add`)."""
        return os.path.realpath(self.git_dir) != os.path.realpath(self.common_dir)

    def git(self, *, with_user_config: bool = False) -> Git:
        return Git(
            self.root, env={"GIT_DIR": self.git_dir, **self._tree()}, network=with_user_config
        )

    def _tree(self) -> dict[str, str]:
        return {} if self.bare else {"GIT_WORK_TREE": self.root}


@dataclass(frozen=True)
class Preflight:
    """`problems` prevent workspaces; `notes` are worth knowing; `dirty` files are not in them."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    dirty: tuple[str, ...] = ()


def discover(cwd: str) -> Repository | None:
    """The repository that a folder belongs to, the innermost if several contain each other."""
    git = Git(cwd)
    try:
        git_dir = git.text("rev-parse", "--absolute-git-dir")
    except GitFailed as error:
        if "not a git repository" in error.message:
            return None
        raise
    bare = git.text("rev-parse", "--is-bare-repository") == "true"
    inside = git.text("rev-parse", "--is-inside-work-tree") == "true"
    if not bare and not inside:
        raise InvalidInput(f"{cwd} is inside a .git folder; change to the checkout")
    root = git_dir if bare else git.text("rev-parse", "--show-toplevel")
    common = git.text("rev-parse", "--path-format=absolute", "--git-common-dir")
    shallow = git.text("rev-parse", "--is-shallow-repository") == "true"
    return Repository(root, git_dir, common, bare, shallow)


def dirty(repository: Repository, *, folders: bool = True) -> list[str]:
    """Files with changes that are not committed, and files that git does not know and does not
    ignore; with `folders`, a folder of unknown files counts once."""
    if repository.bare:
        return []
    git = repository.git(with_user_config=True)
    unknown = f"--untracked-files={'normal' if folders else 'all'}"
    fields = iter(git.names("status", "--porcelain=v1", "-z", unknown))
    paths = []
    for field in fields:
        paths.append(field[3:])
        if field[0] in "RC":
            next(fields, None)  # what it was renamed from
    return paths


def preflight(
    repository: Repository,
    base: str = "HEAD",
    include_dirty: bool = False,
    items: Collection[str] = (),
) -> Preflight:
    """What there is to know about workspaces of this repository before anything starts. `items`:
    the files that the run is about."""
    git = repository.git()
    commit = git.commit_of(base)
    changed, notes = dirty(repository), []
    if commit is not None:
        notes += _of_the_commit(repository, git, commit, filters_at(git, commit))
    if repository.shallow:
        notes.append(f"{repository.root} is a shallow clone: agents see only part of its history")
    if changed and not include_dirty:
        notes.append(
            f"uncommitted changes are not part of the clones: {some(changed)}"
            f"{_items_among(changed, items)} (--include-dirty starts from them)"
        )
    obstacles = problems(repository, base, include_dirty)
    return Preflight(tuple(obstacles), tuple(notes), tuple(changed))


def problems(repository: Repository, base: str, include_dirty: bool) -> list[str]:
    """Why workspaces of this repository cannot work."""
    git = repository.git()
    commit = git.commit_of(base)
    obstacles = _of_the_repository(repository, git)
    if commit is None and not (include_dirty and base == "HEAD"):
        obstacles.append(_no_commit(repository, git, base))
    if commit and "lfs" in filters_at(git, commit) and shutil.which("git-lfs") is None:
        obstacles.append(
            f"{repository.root} uses Git LFS, but git-lfs is not installed; install it"
        )
    return obstacles


def filters_at(git: Git, commit: str) -> set[str]:
    """The names of the filters that the .gitattributes files of a commit mention."""
    words = ("grep", "-I", "-h", "--no-color", "-e", "filter=", commit, "--", ATTRIBUTES)
    lines = git.run(*words, ok=(0, 1)).stdout.splitlines()
    names = (name for line in lines if not line.startswith(b"#") for name in FILTER.findall(line))
    return {name.decode("utf-8", "replace") for name in names}


def submodules_at(git: Git, commit: str) -> dict[str, str]:
    """The paths of a commit that are other repositories, with the commit of each."""
    entries = git.names("ls-tree", "-r", "-z", "--full-tree", commit)
    modules = {}
    for entry in entries:
        facts, path = entry.split("\t", 1)
        mode, _, identifier = facts.split(" ")
        if mode == "160000":
            modules[path] = identifier
    return modules


def some(names: list[str] | tuple[str, ...]) -> str:
    """The first few names, for a message."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _items_among(changed: list[str], items: Collection[str]) -> str:
    both = [path for path in changed if path in items]
    if not both:
        return ""
    return f"; {pluralize(len(both), 'item')} among them: {some(both)}"


def _no_commit(repository: Repository, git: Git, base: str) -> str:
    if base != "HEAD" or git.commit_of("HEAD"):
        return f"{repository.root} has no commit {base!r}"
    if git.text("for-each-ref", "--count=1"):
        return f"HEAD of {repository.root} is a branch without commits; choose a base with --base"
    return f"{repository.root} has no commits yet; make a first one (git commit)"


def _of_the_repository(repository: Repository, git: Git) -> list[str]:
    problems = []
    if git.succeeds("config", "--get-regexp", r"^remote\..*\.promisor$", "true"):
        problems.append(
            f"{repository.root} is a partial clone; fetch the missing objects with "
            f"`git fetch --refetch --no-filter`, then `git config --unset-all "
            f"remote.origin.promisor`"
        )
    storage = git.run("config", "--get", "extensions.refStorage", ok=(0, 1)).stdout.strip()
    if storage not in (b"", b"files"):
        problems.append(f"{repository.root} stores its refs as {storage.decode()}, not as files")
    return problems


def _of_the_commit(repository: Repository, git: Git, commit: str, filters: set[str]) -> list[str]:
    notes = []
    if others := sorted(filters - {"lfs"}):
        notes.append(f"filters are not applied in workspaces: {some(others)}")
    names = git.names("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
    if collisions := case_collisions(names):
        notes.append(f"names that differ in case only: {some(collisions)}")
    modules = submodules_at(git, commit)
    missing = [path for path in modules if not _is_initialised(repository, path)]
    if missing:
        notes.append(
            f"submodules that are not initialized stay empty: {some(sorted(missing))} "
            f"(git submodule update --init)"
        )
    return notes


def case_collisions(names: list[str]) -> list[str]:
    """Names that are the same to a file system that ignores case."""
    seen: dict[str, str] = {}
    collisions: set[str] = set()
    for name in names:
        first = seen.setdefault(name.casefold(), name)
        if first != name:
            collisions.update((first, name))
    return sorted(collisions)


def _is_initialised(repository: Repository, path: str) -> bool:
    return os.path.lexists(os.path.join(repository.root, path, ".git"))
