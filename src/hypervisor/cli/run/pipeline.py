"""The options of `hv run` for pipelines: --then and --reduce."""

import argparse
import os
import shlex
from collections.abc import Sequence
from typing import Any

from hypervisor.cli.output import one_line
from hypervisor.cli.run import agents as run_agents
from hypervisor.cli.run.request import PipelineOptions, RunRequest
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.template import Item, Template
from hypervisor.runs.check_spec import check_spec
from hypervisor.runs.spec import (
    AgentSpec,
    CommandSpec,
    FunctionSpec,
    RunSpec,
    WorkSpec,
    template_of,
)

OTHER_WAYS = (  # of the reduce
    ("--reduce-fn", "MODULE:FUNCTION", "reduce with a function, called with the file's path"),
    ("--reduce-prompt", "FILE|TEXT", "reduce with an agent: its prompt"),
    ("--reduce-agent", "NAME", "agent for --reduce-prompt (default: that of --agent)"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pipelines")
    group.add_argument(
        "--then",
        action="append",
        metavar="COMMANDLINE",
        help="next stage, for each item as soon as it is done: {result} is its result, {output} "
        "the file with its output; repeatable",
    )
    group.add_argument(
        "--reduce",
        metavar="COMMANDLINE",
        help="run once at the end: {} is a file with a line of JSON per item",
    )
    for option, takes, does in OTHER_WAYS:
        group.add_argument(option, metavar=takes, help=does)


class Stages(NamedTuple):
    """The specs of the later stages and the reduce."""

    options: PipelineOptions
    then: tuple[RunSpec, ...] = ()
    reduce: RunSpec | None = None

    @property
    def specs(self) -> tuple[RunSpec, ...]:
        return (*self.then, self.reduce) if self.reduce else self.then

    def lines(self) -> list[str]:
        """A line for each stage, and for the reduce."""
        lines = [f"stage {number}: {one_line(t)}" for number, t in enumerate(self.options.then, 2)]
        if spec := self.reduce:
            lines.append(f"reduce: {one_line(self._reduce_text(spec.work))}")
        return lines

    def _reduce_text(self, work: WorkSpec) -> str:
        match work:
            case AgentSpec(name):
                return f"agent {name}" + (", read-only" if work.permissions == "read-only" else "")
            case FunctionSpec(name):
                return name
            case CommandSpec():
                return self.options.reduce or ""

    def as_json(self) -> dict[str, Any]:
        stages: dict[str, Any] = {}
        if self.then:
            stages["then"] = [list(spec.command.argv) for spec in self.then if spec.command]
        if self.reduce:
            stages["reduce"] = _work_json(self.reduce.work)
        return stages


def _work_json(work: WorkSpec) -> dict[str, Any]:
    match work:
        case CommandSpec(argv):
            return {"command": list(argv)}
        case FunctionSpec(name):
            return {"function": name}
        case AgentSpec(name):
            return {"agent": name, "permissions": work.permissions, "prompt": work.prompt}


def stages_of(request: RunRequest, spec: RunSpec) -> Stages:
    """Check the later stages of a run of `spec`, and return their specs."""
    options = request.pipeline
    if options.then and request.chunks.gate != "none":
        raise InvalidInput(
            "--then cannot be used with --gate: the next stage would start before your decision. "
            "Run it as a separate batch afterwards, or use --reduce, which waits."
        )
    # Settings that the later stages and the reduce share with the run itself.
    shared = RunSpec(
        spec.cwd,
        spec.work,
        workers=spec.workers,
        strategy=spec.strategy,
        limits=spec.limits,
        fail_fast=spec.fail_fast,
        retry_delay=spec.retry_delay,
        workspace="project",
        sandbox=spec.sandbox,
        on=spec.on,
        per_host=spec.per_host,
        pack=spec.pack,
    )
    then = tuple(shared._replace(work=_stage(request, line)) for line in options.then)
    reduce = _reduce(request)
    last = shared._replace(work=reduce, workers=None) if reduce else None
    stages = Stages(options, then, last)
    for stage in stages.specs:
        check_spec(stage)
    return stages


def check_item(templates: Sequence[Template], item: Item) -> None:
    """Refuse an item without a column that a later stage uses."""
    for template in templates:
        template.check({"item", *(item.columns or ()), "result", "output"})


def _stage(request: RunRequest, line: str) -> CommandSpec:
    words = _words("--then", line)
    return CommandSpec(words, clean_env=request.clean_env, result=request.result)


def _words(option: str, line: str) -> tuple[str, ...]:
    """The words of a command line, split as a shell would; no shell is run."""
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise InvalidInput(f"{option}: {str(error).lower()} in {line[:60]!r}.") from None
    if not words:
        raise InvalidInput(f"{option} is empty.")
    return words


def _reduce(request: RunRequest) -> WorkSpec | None:
    options = request.pipeline
    given = [options.reduce, options.reduce_fn, options.reduce_prompt]
    if sum(way is not None for way in given) > 1:
        raise InvalidInput("use only one of --reduce, --reduce-fn and --reduce-prompt.")
    if options.reduce_agent and options.reduce_prompt is None:
        raise InvalidInput("--reduce-agent needs --reduce-prompt.")
    if options.reduce_prompt is not None:
        return _by_agent(request, options.reduce_prompt)
    if options.reduce_fn is not None:
        from hypervisor.runs.functions.virtual_env import active_python

        python = request.python or active_python(options.reduce_fn, os.environ)
        return FunctionSpec(options.reduce_fn, python, request.clean_env)
    if options.reduce is None:
        return None
    command = CommandSpec(_words("--reduce", options.reduce), clean_env=request.clean_env)
    if names := template_of(command).names:
        raise InvalidInput(
            f"--reduce: unknown column {{{names[0]}}}; use {{}}, the file with the results."
        )
    return command


def _by_agent(request: RunRequest, prompt: str) -> AgentSpec:
    """The agent of the reduce; AgentNotReady if it cannot work here."""
    from hypervisor.agents.agents import equipped_spec

    agent, other = request.agents.agent, request.pipeline.reduce_agent
    name = other or agent
    if not name:
        raise InvalidInput("--reduce-prompt needs an agent: name it with --reduce-agent.")
    spec = run_agents.allowed_agent(request, name)
    if agent and other and other != agent:
        spec = spec._replace(model="", allow=(), fallback="")  # these belong to the other agent
    text = run_agents.prompt_text(prompt, "--reduce-prompt")
    host = run_agents.open_host(request)
    return equipped_spec(host, spec._replace(prompt=text))
