"""The options of `hv run` that let something follow on the items: --then and --reduce."""

import argparse
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypervisor.agents import agents as choosing
from hypervisor.batches.chunk import NONE
from hypervisor.cli.output import one_line
from hypervisor.cli.run import agents as run_agents
from hypervisor.cli.run.request import PipelineOptions, RunRequest
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.template import Item, Template
from hypervisor.runs.check_spec import check_spec
from hypervisor.runs.spec import RunSpec, template_of

# What a later stage and the reduce have in common with the run itself.
SHARED = (
    "cwd",
    "clean_env",
    "workers",
    "strategy",
    "time",
    "memory",
    "silence",
    "output",
    "fail_fast",
)

OF_AGENT = ("agent", "permissions", "prompt")

OTHER_WAYS = (  # of the reduce
    ("--reduce-fn", "MODULE:FUNCTION", "the same by a function, which gets the file's path"),
    ("--reduce-prompt", "FILE|TEXT", "the same by an agent: what it is told"),
    ("--reduce-agent", "NAME", "which agent (default: that of --agent)"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pipelines")
    group.add_argument(
        "--then",
        action="append",
        metavar="COMMANDLINE",
        help="the next stage; each item moves on as soon as it is done; {result} is its result, "
        "{output} the file with its output; may be given again",
    )
    group.add_argument(
        "--reduce",
        metavar="COMMANDLINE",
        help="at the end, once, on all results; {} is a file with a line of JSON for each item",
    )
    for option, takes, does in OTHER_WAYS:
        group.add_argument(option, metavar=takes, help=does)


class Stages(NamedTuple):
    """The specs of what follows on the items."""

    options: PipelineOptions
    then: tuple[RunSpec, ...] = ()
    reduce: RunSpec | None = None

    @property
    def specs(self) -> tuple[RunSpec, ...]:
        return (*self.then, self.reduce) if self.reduce else self.then

    def lines(self) -> list[str]:
        """What follows, for people: each stage, and the reduce."""
        lines = [f"stage {number}: {one_line(t)}" for number, t in enumerate(self.options.then, 2)]
        if spec := self.reduce:
            permissions = ", read-only" if spec.permissions == "read-only" else ""
            agent = f"agent {spec.agent}{permissions}" if spec.agent else ""
            what = spec.function or agent or self.options.reduce or ""
            lines.append(f"reduce: {one_line(what)}")
        return lines

    def as_json(self) -> dict[str, Any]:
        then = {"then": [list(spec.command) for spec in self.then]} if self.then else {}
        if not (spec := self.reduce):
            return then
        if spec.command:
            return {**then, "reduce": {"command": list(spec.command)}}
        if spec.function:
            return {**then, "reduce": {"function": spec.function}}
        return {**then, "reduce": {name: getattr(spec, name) for name in OF_AGENT}}


def stages_of(request: RunRequest, spec: RunSpec) -> Stages:
    """Check what follows on a run of `spec`, and make its specs."""
    options = request.pipeline
    if options.then and request.chunks.gate != NONE:
        raise InvalidInput(
            "--then does not go with --gate: the next stage would begin before your decision. "
            "Run it as a batch of its own afterwards; --reduce waits for the last decision."
        )
    shared = {name: getattr(spec, name) for name in SHARED}
    then = tuple(
        RunSpec(command=_words("--then", line), result=request.result, **shared)
        for line in options.then
    )
    stages = Stages(options, then, _reduce(request, {**shared, "workers": None}))
    for stage in stages.specs:
        check_spec(stage)
    return stages


def check_item(templates: Sequence[Template], item: Item) -> None:
    """Refuse an item that lacks what a later stage names."""
    for each in templates:
        each.check({"item", *(item.columns or ()), "result", "output"})


def _words(option: str, line: str) -> tuple[str, ...]:
    """Split as a shell would, which never sees it."""
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise InvalidInput(f"{option}: {str(error).lower()} in {line[:60]!r}.") from None
    if not words:
        raise InvalidInput(f"{option} is empty.")
    return words


def _reduce(request: RunRequest, shared: dict[str, Any]) -> RunSpec | None:
    options = request.pipeline
    given = [options.reduce, options.reduce_fn, options.reduce_prompt]
    if sum(way is not None for way in given) > 1:
        raise InvalidInput("--reduce, --reduce-fn and --reduce-prompt: name one of the three.")
    if options.reduce_agent and options.reduce_prompt is None:
        raise InvalidInput("--reduce-agent goes with --reduce-prompt, which says what it shall do.")
    if options.reduce_prompt is not None:
        return _by_agent(request, options.reduce_prompt, shared)
    if options.reduce_fn is not None:
        return RunSpec(function=options.reduce_fn, python=request.python, **shared)
    if options.reduce is None:
        return None
    spec = RunSpec(command=_words("--reduce", options.reduce), **shared)
    if names := template_of(spec).names:
        raise InvalidInput(
            f"--reduce: {{{names[0]}}} names a column, but {{}} is all there is: the file with "
            "the results."
        )
    return spec


def _by_agent(request: RunRequest, prompt: str, shared: dict[str, Any]) -> RunSpec:
    """Found before anything is started: AgentNotReady if it cannot work here."""
    agent, other = request.agents.agent, request.pipeline.reduce_agent
    name = other or agent
    if not name:
        raise InvalidInput("--reduce-prompt needs an agent: name it with --reduce-agent.")
    own = run_agents.allowance(request)
    if agent and other and other != agent:
        for option in ("model", "allow", "fallback"):  # another agent knows others
            del own[option]
    text = run_agents.prompt_text(prompt, "--reduce-prompt")
    host = run_agents.open_host(request)
    return choosing.equipped_spec(host, RunSpec(agent=name, prompt=text, **own, **shared))
