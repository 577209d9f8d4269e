"""Checks before a run whether clones of the repository can be made and merged."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput, WorkspaceError
from hypervisor.git.command import check_ref_name
from hypervisor.git.destination import checked_out
from hypervisor.git.repository import Repository, discover, preflight, problems, some

if TYPE_CHECKING:
    from hypervisor.runs.spec import RunSpec


def check_clones(spec: RunSpec) -> RunSpec:
    """The spec of a run whose attempts work in clones, with the branch to merge into as it is now.
    WorkspaceError, InvalidInput: they cannot."""
    repository = discover(spec.cwd)
    if repository is None:
        raise InvalidInput(
            f"{spec.cwd} is not in a git repository, which --workspace clone needs. "
            "Nothing was started."
        )
    base, dirty = spec.git.base or "HEAD", spec.git.include_dirty
    reasons = [*problems(repository, base, dirty), *_merge_problems(spec, repository)]
    if reasons:
        other = "" if spec.git.merge else ". --workspace project works in your checkout instead"
        raise WorkspaceError(f"{'; '.join(reasons)}{other}. Nothing was started.")
    if spec.git.merge in ("local", "push", "pr") and not spec.git.target:
        spec = spec._replace(git=spec.git._replace(target=checked_out(repository)))
    return spec


def notes_on_clones(spec: RunSpec, items: Collection[str]) -> tuple[str, ...]:
    """What should be known before clones of the repository are made. `items`: those that are
    files of the repository."""
    repository = discover(spec.cwd)
    if repository is None:
        return ()
    found = preflight(repository, spec.git.base or "HEAD", spec.git.include_dirty, items)
    if not (spec.git.include_dirty and found.dirty):
        return found.notes
    return (
        *found.notes,
        f"uncommitted changes are part of the clones: {some(found.dirty)}{_where_they_land(spec)}",
    )


def _where_they_land(spec: RunSpec) -> str:
    match spec.git.merge:
        case "":
            return ""
        case "branch":
            return "; they land as a commit of their own, below the work of the tasks"
        case _:
            return "; nothing lands until you have committed them"


def _merge_problems(spec: RunSpec, repository: Repository) -> list[str]:
    mode, target = spec.git.merge, spec.git.target
    if target:
        check_ref_name(target)
    if mode == "branch" and target and not target.startswith("hv/"):
        return [
            f"--merge branch writes only branches below hv/, not {target}; "
            "use --merge local or --merge push"
        ]
    if mode == "local" and target and not repository.git().commit_of(f"refs/heads/{target}"):
        return [f"no such branch in {repository.root}: {target}"]
    if mode in ("push", "pr") and spec.git.include_dirty:
        return [f"--include-dirty would publish uncommitted changes with --merge {mode}"]
    if mode in ("push", "pr") and not repository.git().text("remote"):
        return [f"{repository.root} has no remote, which --merge {mode} needs"]
    if mode == "pr" and not (shutil.which("gh") or shutil.which("glab")):
        return ["--merge pr needs gh or glab, and neither is installed"]
    return []
