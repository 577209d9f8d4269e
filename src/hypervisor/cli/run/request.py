"""The request of one `hv run`, typed: built once from the parsed arguments, then passed on."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.queue.host import ON
from hypervisor.queue.lane import Priority
from hypervisor.queue.lifecycle import FIRST_DELAY
from hypervisor.queue.task import NewTask

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.runs.rerun import Rerun
    from hypervisor.runs.spec import (
        Gate,
        MergeMode,
        MergeStrategy,
        OnCut,
        Permissions,
        PullRequestPer,
        ResultFormat,
        Stdin,
        Strategy,
        Workspace,
        WriteBack,
    )
    from hypervisor.skills.folders import FoundSkill

Words = tuple[str, ...]
Options = TypeVar("Options", bound=tuple[Any, ...])


class ItemOptions(NamedTuple):
    """Where the items come from."""

    items: Words = ()
    item: Words = ()
    format: str | None = None
    epic: str | None = None
    null: bool = False
    paths_only: bool = False  # the content of the files is not read
    columns: dict[str, str] | None = None  # added to the columns of every item


class AgentOptions(NamedTuple):
    """The agent, its permissions and its budgets."""

    agent: str | None = None
    prompt: str | None = None
    pull: int | None = None
    permissions: Permissions | None = None
    allow: Words = ()
    model: str | None = None
    turns: int | None = None
    budget: int | None = None
    task_budget: int | None = None
    task_tokens: int | None = None
    tokens: int | None = None
    fallback: str | None = None
    scratch: bool = False
    schema: str | None = None
    gateway: bool | None = None  # None: as configured


class GitOptions(NamedTuple):
    """Where attempts work, and where their commits are merged."""

    workspace: Workspace | None = None
    base: str | None = None
    include_dirty: bool = False
    sparse: Words = ()
    continues: bool = False
    merge: MergeMode | None = None
    target: str | None = None
    merge_strategy: MergeStrategy | None = None
    verify: Words = ()
    pr_per: PullRequestPer | None = None


class PipelineOptions(NamedTuple):
    """The later stages and the reduce."""

    then: Words = ()
    reduce: str | None = None
    reduce_fn: str | None = None
    reduce_prompt: str | None = None
    reduce_agent: str | None = None


class ChunkOptions(NamedTuple):
    """How the batch is split, and where it stops for a decision."""

    chunk: str | None = None
    chunk_by: str | None = None
    chunk_size: int | None = None
    per: str = "item"
    gate: Gate = "none"


class PrintOptions(NamedTuple):
    """Whether outputs are printed, and how."""

    print_output: bool | None = None  # None: not given
    ordered: bool = False
    tag: bool = False


class TaskOptions(NamedTuple):
    """Fields that all tasks of the run share."""

    type: str = "run"
    branch: str = ""
    priority: Priority = "medium"
    retries: int = 0
    after: Words = ()
    at: str | None = None
    delay: int | None = None
    exclusive: Words = ()
    requires: Words = ()
    on: Words = ()

    def new_task(self, title: str) -> NewTask:
        return NewTask(
            title,
            type=self.type,
            priority=self.priority,
            retries=self.retries,
            after=self.after,
            requires=(*self.requires, *(ON + label for label in self.on)),
            branch=self.branch,
        )


class RunRequest(NamedTuple):
    """The options of `hv run`; those that belong together are grouped."""

    items: ItemOptions
    agents: AgentOptions
    git: GitOptions
    pipeline: PipelineOptions
    chunks: ChunkOptions
    tasks: TaskOptions
    printing: PrintOptions
    look: Callable[[], Context]  # opens this host's settings, without a store
    command: Words = ()
    fn: str | None = None
    python: str | None = None
    shell: bool = False
    stdin: Stdin = "closed"
    clean_env: bool = False
    sandbox: str = ""
    cwd: str = "."
    workers: int | None = None
    claim: int | None = None
    strategy: Strategy = "auto"
    per_host: int | None = None
    pack: bool = False
    on_cut: OnCut | None = None
    fail_fast: bool = False
    retry_delay: int = FIRST_DELAY
    timeout: int | None = None
    memory: int | None = None
    silence: int | None = None
    max_output: int | None = None
    result: ResultFormat = "none"
    write_back: WriteBack | None = None
    propose: bool = False
    name: str | None = None
    store: str | None = None
    json: bool = False
    quiet: bool = False
    again: bool = False
    no_changed: bool = False
    skip_bad: bool = False
    require_items: bool = False
    detach: bool = False
    dry_run: bool = False
    skill: FoundSkill | None = None
    skill_paths: Words = ()

    @property
    def rerun(self) -> Rerun:
        return "all" if self.again else "unfinished" if self.no_changed else "changed"

    @property
    def takes_files_as_they_are(self) -> bool:
        """Some skills work on the task files themselves, whatever status those have."""
        return self.skill is not None and self.skill.skill.items.paths


def _refuse_words_before_command(args: argparse.Namespace) -> None:
    """They would become a part of the command: hv run '*.py' -- pylint {}."""
    words: list[str] = args.words
    if "--" not in words:
        return
    command = words[words.index("--") + 1 :]
    extra = args.command[: len(args.command) - len(command)]
    if extra:
        options = " ".join(f"--items {shlex.quote(word)}" for word in extra)
        raise InvalidInput(f"the command follows --; for items, use {options[:400]}")


def request_of(args: argparse.Namespace) -> RunRequest:
    """The request of a command line, after a skill has filled in its defaults."""
    from hypervisor.cli.run.spec import apply_skill

    _refuse_words_before_command(args)
    apply_skill(args)
    groups = {
        "items": _options(ItemOptions, args),
        "agents": _options(AgentOptions, args),
        "git": _options(GitOptions, args),
        "pipeline": _options(PipelineOptions, args),
        "chunks": _options(ChunkOptions, args),
        "tasks": _options(TaskOptions, args),
        "printing": _options(PrintOptions, args),
    }
    return _options(RunRequest, argparse.Namespace(**{**vars(args), **groups}))


def _options(kind: type[Options], args: argparse.Namespace) -> Options:
    """The arguments with these names; defaults for those that were not given."""
    fields: Words = kind._fields  # type: ignore[attr-defined]
    given = {name: getattr(args, name, None) for name in fields}
    return kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None
        }
    )
