"""The options of `hv run` for git: a clone for every task, and where its commits are merged."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput
from hypervisor.runs.check_spec import with_workspace
from hypervisor.runs.spec import MERGE_MODES, MERGE_STRATEGIES, WORKSPACES, GitSpec, RunSpec

if TYPE_CHECKING:
    from hypervisor.cli.run.request import GitOptions, RunRequest
    from hypervisor.git.item_files import ItemFiles
    from hypervisor.queue.task import Json
    from hypervisor.runs.config import WorkspaceSettings
    from hypervisor.runs.spec import Workspace

UNVERIFIED = (
    "NOT VERIFIED: nothing is tested before it is merged; add --verify 'make test', or set "
    'verify = ["make test"] under [merge] in config.toml'
)
WITH_MERGE = ("target", "merge_strategy", "verify", "pr_per")  # mean nothing without --merge


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("workspaces and merging (git)")
    group.add_argument(
        "--workspace",
        choices=[name for name in WORKSPACES if name],
        help="where an attempt works: in the project, in a scratch copy, or in a clone of the "
        "repository (default: clone for agents that may edit a git repository, else project)",
    )
    group.add_argument(
        "--base", metavar="REVISION", help="commit to start from (default: what is checked out)"
    )
    group.add_argument(
        "--include-dirty",
        action="store_true",
        help="start from the checkout with its uncommitted changes",
    )
    group.add_argument(
        "--sparse", action="append", metavar="FOLDER", help="check out only this folder"
    )
    group.add_argument(
        "--continue",
        dest="continues",
        action="store_true",
        help="a retry continues with the files of the last attempt",
    )
    _add_merge(group)


def _add_merge(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--merge",
        choices=[mode for mode in MERGE_MODES if mode],
        help="merge finished work: into the branch hv/BATCH, into the local branch that is checked "
        "out, by a push, or as a pull request",
    )
    group.add_argument("--target", metavar="BRANCH", help="branch to merge into")
    group.add_argument(
        "--pr-per",
        choices=("batch", "task"),
        help="with --merge pr: one pull request for the batch or for each task (default: batch)",
    )
    group.add_argument(
        "--merge-strategy",
        choices=MERGE_STRATEGIES,
        help="a merge commit, one commit per task, or rebased commits (default: merge)",
    )
    group.add_argument(
        "--verify",
        action="append",
        metavar="COMMAND",
        help="shell command that must succeed before work is merged",
    )


def workspace_of(request: RunRequest) -> tuple[Workspace, GitSpec]:
    """Where attempts work, if that was chosen, and what happens to their commits."""
    options = request.git
    wrong = next((name for name in WITH_MERGE if getattr(options, name)), None)
    if wrong is not None and options.merge is None:
        raise InvalidInput(
            f"--{wrong.replace('_', '-')} works only with --merge, as in `--merge branch`."
        )
    if request.agents.scratch and options.workspace not in (None, "scratch"):
        raise InvalidInput(
            f"--scratch and --workspace {options.workspace} cannot be used together."
        )
    git = _git_spec(options)
    if request.agents.scratch:
        return "scratch", git
    return options.workspace or "", git


def _git_spec(options: GitOptions) -> GitSpec:
    return GitSpec(
        base=options.base or "",
        sparse=options.sparse,
        include_dirty=options.include_dirty,
        continues=options.continues,
        merge=options.merge or "",
        target=options.target or "",
        strategy=options.merge_strategy or "merge",
        verify=options.verify,
        pr_per=options.pr_per or "batch",
    )


def checked_clones(spec: RunSpec) -> RunSpec:
    """The spec, complete. WorkspaceError, InvalidInput: clones cannot be made."""
    spec = with_workspace(spec)
    if spec.workspace != "clone":
        return spec
    from hypervisor.git.preflight import check_clones

    return check_clones(spec)


def item_files(request: RunRequest, spec: RunSpec) -> ItemFiles | None:
    """The check that clones will have the items; None without clones."""
    if spec.workspace != "clone":
        return None
    from hypervisor.git.item_files import ItemFiles

    def settings() -> WorkspaceSettings:
        host = request.look()
        try:
            return host.settings.workspace
        finally:
            host.close()

    return ItemFiles(spec, settings)


def notes_on(spec: RunSpec, files: ItemFiles | None) -> tuple[str, ...]:
    """What should be known before clones are made. WorkspaceError: they lack some of the items."""
    if files is None:
        return ()
    from hypervisor.git.preflight import notes_on_clones

    files.check()
    return notes_on_clones(spec, files.paths)


def verification_note(spec: Json) -> list[str]:
    """How the work of a batch is verified before it is merged, by its stored spec: loudly, if it
    is not."""
    if not isinstance(spec, dict) or not spec.get("git_merge"):
        return []
    commands = spec.get("git_verify")
    return [f"verified with: {'; '.join(commands)}"] if commands else [UNVERIFIED]
