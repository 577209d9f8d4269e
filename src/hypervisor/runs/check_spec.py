"""Validation of run specs, and where attempts work if nobody has chosen."""

import os

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.runs.config_readers import MAX_WORKERS
from hypervisor.runs.sandbox.level import LEVELS, NO_FUNCTIONS
from hypervisor.runs.spec import (
    AUTO,
    GATES,
    MERGE_MODES,
    MERGE_STRATEGIES,
    MODES,
    PERMISSIONS,
    RESULT_FORMATS,
    STDINS,
    STRATEGIES,
    WORKSPACES,
    WRITE_BACKS,
    AgentSpec,
    CommandSpec,
    FunctionSpec,
    GitSpec,
    RunSpec,
    WorkSpec,
)
from hypervisor.store.clock import MAX_DELAY

MAX_PULLED = 1_000
MAX_PROMPT_LENGTH = 200_000
NOTHING_TO_RUN = "nothing to run: give a command, a function with --fn, or an agent with --agent."


def check_spec(spec: RunSpec) -> RunSpec:
    """The spec, if it is valid."""
    _check_work(spec.work)
    if spec.strategy not in STRATEGIES:
        raise InvalidInput(f"unknown strategy: use one of {', '.join(STRATEGIES)}.")
    _check_choice("gate", spec.gate, GATES)
    _check_choice("write_back", spec.write_back, WRITE_BACKS)
    _check_workspace(spec)
    _check_sandbox(spec)
    if spec.workers is not None:
        validate.number("the number of workers", spec.workers, 1, MAX_WORKERS)
    if spec.per_host is not None:
        validate.number("the number of workers per host", spec.per_host, 1, MAX_WORKERS)
    validate.names("on", spec.on)
    validate.number("the retry delay", spec.retry_delay, 0, MAX_DELAY)
    if spec.claim is not None:
        validate.number("the number of tasks to claim at once", spec.claim, 1, 1000)
    return spec


def _check_work(work: WorkSpec) -> None:
    match work:
        case AgentSpec(""):
            raise InvalidInput(NOTHING_TO_RUN)
        case AgentSpec():
            return _check_agent(work)
        case CommandSpec(()):
            raise InvalidInput(NOTHING_TO_RUN)
        case CommandSpec():
            _check_choice("stdin", work.stdin, STDINS)
        case FunctionSpec(name):
            module, colon, function = name.partition(":")
            if not (colon and module and function):
                raise InvalidInput(f"invalid function {name!r} (try package.module:function)")
    return _check_choice("result", work.result, RESULT_FORMATS)


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidInput(f"unknown {name} {value[:40]!r}: use one of {', '.join(allowed)}.")


def _check_workspace(spec: RunSpec) -> None:
    _check_choice("workspace", spec.workspace, WORKSPACES)
    _check_choice("merge", spec.git.merge, MERGE_MODES)
    _check_choice("the merge strategy", spec.git.strategy, MERGE_STRATEGIES)
    if spec.workspace not in ("", "clone") and spec.git != GitSpec():
        raise InvalidInput("options for git need --workspace clone.")
    if spec.agent and spec.agent.mode == "pull" and spec.workspace in ("scratch", "clone"):
        option = "--scratch" if spec.workspace == "scratch" else "--workspace clone"
        raise InvalidInput(f"{option} needs one agent per task and cannot be used with --pull.")


def _check_sandbox(spec: RunSpec) -> None:
    if spec.sandbox:
        _check_choice("sandbox level", spec.sandbox, LEVELS)
    if spec.function and spec.sandbox not in ("", "none"):
        raise InvalidInput(f"{NO_FUNCTIONS}.")


def _check_agent(spec: AgentSpec) -> None:
    """InvalidInput: the agent part of a run spec is invalid."""
    _check_choice("mode", spec.mode, MODES)
    _check_choice("permissions", spec.permissions, PERMISSIONS)
    validate.number("the number of tasks to pull", spec.pull, 1, MAX_PULLED)
    for name, number in (
        ("the number of turns", spec.turns),
        ("the budget", spec.budget),
        ("the budget of a task", spec.task_budget),
        ("the number of tokens", spec.tokens),
        ("the number of tokens of a task", spec.task_tokens),
    ):
        if number is not None:
            validate.number(name, number, 1, 2**53)
    validate.text("the prompt", spec.prompt, MAX_PROMPT_LENGTH)
    validate.text("the model", spec.model, 200)
    validate.keys("allowed tools", spec.allow)
    if spec.fallback and spec.fallback == spec.name:
        raise InvalidInput("the fallback must be another agent.")
    if spec.mode == "pull":
        _check_pull(spec)
    if spec.schema:
        from hypervisor.queue.result_schema import check_schema

        check_schema(spec.schema)


def _check_pull(spec: AgentSpec) -> None:
    """The usage of a pull agent does not belong to a single task."""
    wrong = {
        "--schema": spec.schema,
        "--task-budget": spec.task_budget is not None,
        "--task-tokens": spec.task_tokens is not None,
        "--fallback with --agent auto": spec.fallback and spec.name == AUTO,
    }
    for option, is_given in wrong.items():
        if is_given:
            raise InvalidInput(f"{option} needs one agent per task and cannot be used with --pull.")


def with_workspace(spec: RunSpec) -> RunSpec:
    """The spec with its workspace chosen: clones for agents that may change files of a git
    repository, and if there are options for git; otherwise the project itself."""
    if spec.workspace:
        return spec
    wants_clone = spec.git != GitSpec() or (_edits(spec) and _is_in_repository(spec.cwd))
    return spec._replace(workspace="clone" if wants_clone else "project")


def _edits(spec: RunSpec) -> bool:
    """Whether each task has an agent of its own that changes files. One that proposes changes
    leaves them to others."""
    agent = spec.agent
    if agent is None or spec.propose:
        return False
    return agent.mode == "push" and agent.permissions != "read-only"


def _is_in_repository(folder: str) -> bool:
    """Looked up without git, which most runs do not need."""
    parent, here = os.path.realpath(folder), ""
    while parent != here:
        here, parent = parent, os.path.dirname(parent)
        if os.path.lexists(os.path.join(here, ".git")):
            return True
    return False
