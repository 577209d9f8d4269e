"""What one `hv run` asks for, typed: built once from the parsed arguments, then passed on."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hypervisor.queue.task import NewTask

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
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
    paths_only: bool = False  # nobody asks what is in the files
    columns: dict[str, str] | None = None  # that every item has besides its own


class AgentOptions(NamedTuple):
    """Which agent works, how, and what it may do and cost."""

    agent: str | None = None
    prompt: str | None = None
    pull: int | None = None
    permissions: str | None = None
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


class PipelineOptions(NamedTuple):
    """What follows on the items."""

    then: Words = ()
    reduce: str | None = None
    reduce_fn: str | None = None
    reduce_prompt: str | None = None
    reduce_agent: str | None = None


class ChunkOptions(NamedTuple):
    """How the batch is cut, and where it stops for a decision."""

    chunk: str | None = None
    chunk_by: str | None = None
    chunk_size: int | None = None
    per: str = "item"
    gate: str = "none"


class TaskOptions(NamedTuple):
    """What all tasks have in common."""

    type: str = "run"
    branch: str = ""
    priority: str = "medium"
    retries: int = 0
    after: Words = ()
    key: Words = ()
    requires: Words = ()

    def new_task(self, title: str) -> NewTask:
        return NewTask(
            title,
            type=self.type,
            priority=self.priority,
            retries=self.retries,
            after=self.after,
            requires=self.requires,
            branch=self.branch,
        )


class RunRequest(NamedTuple):
    """The options of `hv run`; those that belong together are grouped."""

    items: ItemOptions
    agents: AgentOptions
    pipeline: PipelineOptions
    chunks: ChunkOptions
    tasks: TaskOptions
    look: Callable[[], Context]  # opens this host's settings, without a store
    command: Words = ()
    fn: str | None = None
    python: str | None = None
    shell: bool = False
    stdin: str = "closed"
    clean_env: bool = False
    cwd: str = "."
    workers: int | None = None
    claim: int | None = None
    strategy: str = "auto"
    fail_fast: bool = False
    timeout: int | None = None
    memory: int | None = None
    silence: int | None = None
    max_output: int | None = None
    result: str = "none"
    write_back: str | None = None
    propose: bool = False
    name: str | None = None
    store: str | None = None
    json: bool = False
    quiet: bool = False
    detach: bool = False
    dry_run: bool = False
    skill: FoundSkill | None = None
    skill_paths: Words = ()

    @property
    def takes_files_as_they_are(self) -> bool:
        """Some skills work on task files themselves: what those say does not keep them from it."""
        return self.skill is not None and self.skill.skill.items.paths


def request_of(args: argparse.Namespace) -> RunRequest:
    """The request of a command line, after a skill has filled in its defaults."""
    from hypervisor.cli.run.spec import apply_skill

    apply_skill(args)
    groups = {
        "items": _options(ItemOptions, args),
        "agents": _options(AgentOptions, args),
        "pipeline": _options(PipelineOptions, args),
        "chunks": _options(ChunkOptions, args),
        "tasks": _options(TaskOptions, args),
    }
    return _options(RunRequest, argparse.Namespace(**{**vars(args), **groups}))


def _options(kind: type[Options], args: argparse.Namespace) -> Options:
    """The arguments of these names; what was not given has the default."""
    fields: Words = kind._fields  # type: ignore[attr-defined]
    given = {name: getattr(args, name, None) for name in fields}
    return kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None
        }
    )
