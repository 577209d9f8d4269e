"""Files in a folder as a tree in the hub: what is tracked there, and what is new and not ignored.

Works with an index of ours and with the repository of the hub, so the folder's own index is not
touched and its own .git may be damaged or gone. The size of what is taken is bounded; what is left
out is named.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from hypervisor.core.errors import GitFailed, WorkspaceError
from hypervisor.git.command import Git

MAX_UNREADABLE = 20
# In sparse checkouts, files that came back are seen only with this setting.
SPARSE = ("-c", "core.sparseCheckout=true")
UNREADABLE = re.compile(r"Unable to process path (.*)")


@dataclass(frozen=True)
class Limits:
    """In bytes: of one file, of all changed files together, and what must stay free on disk."""

    file: int = 10 << 20
    total: int = 200 << 20
    free: int = 500 << 20


@dataclass(frozen=True)
class LeftOut:
    """A file that was not saved, or a commit."""

    path: str
    why: str
    is_commit: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.path} ({self.why})"


@dataclass(frozen=True)
class Tree:
    id: str
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class Files:
    """Where the files are and how to read them. `index` is kept between calls and only saves
    time; without it, `start` is what the files are compared with. `absent` names the files that
    are missing on purpose (a sparse checkout), `forced` those that are tracked although ignored;
    None if that is not known. `nested`: take the files of repositories inside, instead of leaving
    them out. `restore`: of what is left out, take the version in `start`. `kept_out`: files and
    folders to ignore, whatever git thinks of them."""

    folder: str
    hub: str
    index: str
    start: str | None
    absent: Callable[[], set[str]] = set
    forced: Callable[[], set[str] | None] = lambda: None
    nested: bool = False
    restore: bool = False
    kept_out: frozenset[str] = frozenset()
    limits: Limits = Limits()


def write_tree(files: Files) -> Tree:
    """The tree of the files as they are now."""
    _check_space(files)
    spare = f"{files.index}.{uuid.uuid4().hex}"
    kept = f"{spare}.kept"
    git = Git(
        files.folder,
        env={"GIT_DIR": files.hub, "GIT_WORK_TREE": files.folder, "GIT_INDEX_FILE": spare},
    )
    try:
        changes = _start(git, files, spare)
        changes += _forced(git, files)
        changes = [change for change in changes if not is_kept_out(change[2:], files.kept_out)]
        absent = files.absent()
        removed, wanted, left_out = _sort(changes, files, absent)
        _remove(git, removed)
        inner = tuple(change[2:] for change in changes if change.endswith("/"))
        left_out += _add(git, [path for path in wanted if not path.startswith(inner)])
        again = absent | {item.path for item in left_out if files.restore}
        if again and files.start:
            _restore(git, files.start, again)
            left_out = _still_left_out(git, left_out) if files.restore else left_out
        if not files.restore:
            shutil.copy2(spare, kept)
            os.replace(kept, files.index)
        left_out += _add(git, [path for path in wanted if path.startswith(inner)])
        tree = git.text("write-tree")
    finally:
        for leftover in (spare, kept, f"{spare}.lock"):
            with suppress(FileNotFoundError):
                os.unlink(leftover)
    return Tree(tree, tuple(left_out))


def absent_files(git: Git) -> set[str]:
    """Files that a sparse checkout leaves out, as the index of a checkout has it."""
    return {name[2:] for name in git.names("ls-files", "-z", "-t") if name.startswith("S ")}


def _start(git: Git, files: Files, spare: str) -> list[str]:
    """What has changed, against the kept index or, without a usable one, against `start`."""
    try:
        shutil.copy2(files.index, spare)
        return _changes(git)
    except (FileNotFoundError, GitFailed):
        git.run("read-tree", files.start or "--empty")
        return _changes(git)


def is_kept_out(path: str, kept_out: frozenset[str]) -> bool:
    if not kept_out:
        return False
    parts = path.rstrip("/").split("/")
    return any("/".join(parts[:count]) in kept_out for count in range(1, len(parts) + 1))


def _changes(git: Git) -> list[str]:
    words = ("ls-files", "-z", "-t", "--others", "--modified", "--deleted", "--exclude-standard")
    return git.names(*SPARSE, *words)


def forced_files(git: Git) -> set[str]:
    """Files that are tracked although they are ignored, as the index of a checkout has it."""
    return set(git.names("ls-files", "-z", "--cached", "--ignored", "--exclude-standard"))


def _forced(git: Git, files: Files) -> list[str]:
    """Ignored files that came to be tracked, or ceased to be, as changes."""
    theirs = files.forced()
    if theirs is None:
        return []
    ours = forced_files(git)
    there = (path for path in theirs - ours if os.path.lexists(os.path.join(files.folder, path)))
    return [*(f"R {path}" for path in ours - theirs), *(f"? {path}" for path in there)]


def _restore(git: Git, start: str, paths: set[str]) -> None:
    """Put the version of a commit into the index, or nothing if the commit has none."""
    entries = git.names("ls-tree", "-r", "-z", "--full-tree", start)
    lines = [entry for entry in entries if entry.split("\t", 1)[1] in paths]
    _remove(git, sorted(paths - {line.split("\t", 1)[1] for line in lines}))
    git.run("update-index", "-z", "--index-info", stdin=_joined(lines))


def _still_left_out(git: Git, left_out: list[LeftOut]) -> list[LeftOut]:
    """Without the files that are as they were in the commit."""
    paths = [item.path for item in left_out]
    words = ("--literal-pathspecs", "ls-files", "-z")
    tracked = set(git.names(*words, "--", *paths))
    changed = set(git.names(*words, "--modified", "--", *paths))
    return [item for item in left_out if item.path not in tracked or item.path in changed]


def _sort(
    changes: Iterable[str], files: Files, absent: set[str]
) -> tuple[list[str], list[str], list[LeftOut]]:
    """Split changes into files that are gone, files to read, and files to leave out."""
    removed = {change[2:] for change in changes if change.startswith("R ")} - absent
    paths = {change[2:] for change in changes if not change.startswith("R ")} - removed - absent
    wanted: list[str] = []
    left_out: list[LeftOut] = []
    total = 0
    for path in _files(sorted(paths), files, left_out):
        size = _size(os.path.join(files.folder, path))
        if size > files.limits.file:
            left_out.append(
                LeftOut(path, f"{in_words(size)}, more than {in_words(files.limits.file)}")
            )
        elif total + size > files.limits.total:
            left_out.append(LeftOut(path, f"more than {in_words(files.limits.total)} in all"))
        else:
            total += size
            wanted.append(path)
    return sorted(removed), wanted, left_out


def _files(paths: list[str], files: Files, left_out: list[LeftOut]) -> Iterable[str]:
    """The paths, with those of repositories inside replaced by their files."""
    for path in paths:
        if not path.endswith("/"):
            yield path
        elif files.nested:
            yield from _files_of_nested(files.folder, path)
        else:
            left_out.append(LeftOut(path, "a repository of its own"))


def _files_of_nested(folder: str, path: str) -> list[str]:
    top = os.path.join(folder, path)
    git = Git(top, env={"GIT_DIR": os.path.join(top, ".git"), "GIT_WORK_TREE": top})
    try:
        names = git.names("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except GitFailed:
        names = [
            os.path.relpath(os.path.join(here, name), top)
            for here, folders, files in os.walk(top)
            if ".git" not in os.path.relpath(here, top).split(os.sep)
            for name in files
        ]
    return [path + name for name in names if os.path.lexists(os.path.join(top, name))]


def _remove(git: Git, paths: list[str]) -> None:
    if paths:
        git.run("update-index", "-z", "--force-remove", "--stdin", stdin=_joined(paths))


def _add(git: Git, paths: list[str]) -> list[LeftOut]:
    """Read files into the index; what cannot be read is left out. Files may vanish at any time."""
    left_out: list[LeftOut] = []
    words = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
    while paths:
        try:
            git.run(*SPARSE, *words, stdin=_joined(paths))
            break
        except GitFailed as error:
            match = UNREADABLE.search(error.message)
            path = match[1] if match else ""
            if path not in paths or len(left_out) == MAX_UNREADABLE:
                raise
            left_out.append(LeftOut(path, "cannot be read"))
            paths = [name for name in paths if name != path]
    return left_out


def _check_space(files: Files) -> None:
    system = os.statvfs(files.hub)
    free = system.f_bavail * system.f_frsize
    if free < files.limits.free:
        raise WorkspaceError(
            f"only {in_words(free)} free on the disk of {files.hub}; {files.folder} was not saved"
        )


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def in_words(size: int) -> str:
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"


def _joined(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)
