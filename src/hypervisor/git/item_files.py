"""Items that are files of the repository, compared with what clones of it will have.

A clone has the files of one commit. An item that is not among them would fail its task after the
start, so it is refused before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from hypervisor.batches.preflight_findings import Finding
from hypervisor.core.errors import WorkspaceError
from hypervisor.core.records import NamedTuple
from hypervisor.git.repository import Repository, dirty, discover, submodules_at
from hypervisor.git.workspace import is_in_cone
from hypervisor.inputs.item_names import printable_path
from hypervisor.runs.workspaces import path_in

if TYPE_CHECKING:
    from hypervisor.runs.config import WorkspaceSettings
    from hypervisor.runs.spec import RunSpec

NAMED = 3
ADVICE_IF_OUTSIDE = "add --sparse with their folder, or leave --sparse out"


class Missing(NamedTuple):
    """Items that clones will not have, because they are not committed, because git ignores them,
    or because of --sparse."""

    uncommitted: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()


class ItemFiles:
    """Call `add` for every item, then the others. `settings` are asked for only if needed."""

    def __init__(self, spec: RunSpec, settings: Callable[[], WorkspaceSettings]) -> None:
        found = discover(spec.cwd)
        self._repository = None if found is None or found.bare else found
        self._spec, self._settings = spec, settings
        self._paths: dict[str, None] = {}
        self._missing: Missing | None = None

    def add(self, text: str) -> None:
        if self._repository is None:
            return
        path = path_in(self._repository.root, self._spec.cwd, text)
        if path and os.path.lexists(os.path.join(self._repository.root, path)):
            self._paths[path] = None
            self._missing = None

    @property
    def paths(self) -> Collection[str]:
        """From the top of the repository."""
        return self._paths

    def check(self) -> None:
        """WorkspaceError: clones will not have some of the items."""
        if messages := [finding.message for finding in self.findings()]:
            raise WorkspaceError(f"{'; '.join(messages)}. Nothing was started.")

    def findings(self) -> Iterator[Finding]:
        missing = self._look()
        for paths, why, advice in (
            (missing.uncommitted, self._why(), self._advice()),
            (missing.ignored, "ignored by git", self._advice_if_ignored()),
            (missing.outside, self._why_outside(), ADVICE_IF_OUTSIDE),
        ):
            if paths:
                yield _finding(paths, why, advice)

    def _look(self) -> Missing:
        if self._missing is None:
            repository = self._repository if self._paths else None
            self._missing = self._compare(repository) if repository else Missing()
        return self._missing

    def _compare(self, repository: Repository) -> Missing:
        there = _with_folders(self._names(repository))
        absent = [path for path in self._paths if not _is_there(repository, path, there)]
        ignored = _ignored(repository, absent)
        sparse = self._spec.git.sparse
        outside = (path for path in self._paths if not _is_checked_out(repository, path, sparse))
        return Missing(
            tuple(path for path in absent if path not in ignored),
            tuple(self._not_brought(repository, [path for path in absent if path in ignored])),
            tuple(path for path in outside if path not in absent),
        )

    def _names(self, repository: Repository) -> list[str]:
        """The files of the clones, as far as git has them. Those of submodules count as there."""
        git, options, names = repository.git(), self._spec.git, []
        commit = git.commit_of("HEAD" if options.include_dirty else options.base or "HEAD")
        if commit is not None:
            names = git.names("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
            inside = tuple(f"{path}/" for path in submodules_at(git, commit))
            names += [path for path in self._paths if path.startswith(inside)]
        return names + (dirty(repository, folders=False) if options.include_dirty else [])

    def _not_brought(self, repository: Repository, ignored: list[str]) -> list[str]:
        """Without the files that [workspace] brings into clones, or that its commands may make."""
        if not ignored:
            return []
        from hypervisor.git.recipe import ignored_files
        from hypervisor.git.work_tree import is_kept_out

        settings = self._settings()
        if settings.setup:
            return []
        brought = frozenset((*ignored_files(repository, settings.include), *settings.caches))
        return [path for path in ignored if not is_kept_out(path, brought)]

    def _why(self) -> str:
        base = self._spec.git.base
        return f"not in {base[:40]}" if base else "not committed"

    def _why_outside(self) -> str:
        return f"outside of {' '.join(f'--sparse {folder}' for folder in self._spec.git.sparse)}"

    def _advice(self) -> str:
        git = self._spec.git
        first = "choose another --base" if git.base else "commit them"
        can_land = git.merge in ("", "branch")
        dirty = "--include-dirty" if can_land and not (git.base or git.include_dirty) else ""
        options = " or ".join(filter(None, (dirty, self._project())))
        return f"{first}, or use {options}" if options else first

    def _advice_if_ignored(self) -> str:
        first = "add them to include under [workspace] in config.toml"
        return f"{first}, or use {self._project()}" if self._project() else first

    def _project(self) -> str:
        return "" if self._spec.git.merge else "--workspace project"


def _finding(paths: tuple[str, ...], why: str, advice: str) -> Finding:
    count, names = len(paths), [printable_path(path)[:200] for path in paths]
    more = f" and {count - NAMED:,} more" if count > NAMED else ""
    if count == 1:
        subject = f"1 item is {why}, so the clones"
        advice = advice.replace("them", "it").replace("their", "its")
        message = f"{subject} do not have it: {names[0]}; {advice}"
    else:
        subject = f"{count:,} items are {why}, so the clones"
        message = f"{subject} do not have them: {', '.join(names[:NAMED])}{more}; {advice}"
    return Finding("uncommitted", count, message, (), True)


def _with_folders(names: list[str]) -> set[str]:
    there = set(names)
    for name in names:
        folder = os.path.dirname(name.rstrip("/"))
        while folder and folder not in there:
            there.add(folder)
            folder = os.path.dirname(folder)
    return there


def _is_there(repository: Repository, path: str, there: set[str]) -> bool:
    """A link that is followed on the way may lead elsewhere; outside of the repository, what is
    there does not depend on the clone."""
    if path in there:
        return True
    root = os.path.realpath(repository.root)
    folder, name = os.path.split(path)
    real = os.path.join(os.path.realpath(os.path.join(root, folder)), name)
    return not real.startswith(root + os.sep) or real.removeprefix(root + os.sep) in there


def _is_checked_out(repository: Repository, path: str, sparse: tuple[str, ...]) -> bool:
    """Whether a sparse checkout of these folders has a path; see _is_there about links."""
    root = os.path.realpath(repository.root)
    folder, name = os.path.split(path)
    real = os.path.join(os.path.realpath(os.path.join(root, folder)), name)
    if not sparse or not real.startswith(root + os.sep):
        return True
    below = real.removeprefix(root + os.sep)
    return is_in_cone(below, sparse, is_folder=os.path.isdir(real))


def _ignored(repository: Repository, paths: list[str]) -> set[str]:
    if not paths:
        return set()
    stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
    git = repository.git(with_user_config=True)
    checked = git.run("check-ignore", "-z", "--stdin", stdin=stdin, ok=(0, 1)).stdout
    return set(os.fsdecode(checked).split("\0"))
