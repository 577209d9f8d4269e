"""The options of `hv run` that let something follow on the items: --then and --reduce."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any

from hypervisor.agents import agents as choosing
from hypervisor.batches.chunk import NONE
from hypervisor.cli.output import one_line
from hypervisor.cli.run import agents as run_agents
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

OTHER_WAYS = (  # of the reduce
    ("--reduce-fn", "MODULE:FUNCTION", "the same by a function, which gets the file's path"),
    ("--reduce-prompt", "FILE|TEXT", "the same by an agent: what it is told"),
    ("--reduce-agent", "NAME", "which agent (default: that of --agent)"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("patterns (what follows on the items)")
    group.add_argument(
        "--then",
        action="append",
        metavar="COMMANDLINE",
        help="the next stage: each item goes on to it as soon as it is done here; {result} is "
        "what came of it, {output} the file with what that printed; may be given again",
    )
    group.add_argument(
        "--reduce",
        metavar="COMMANDLINE",
        help="at the end, once, on all results; {} is a file with a line of JSON for each item",
    )
    for option, takes, does in OTHER_WAYS:
        group.add_argument(option, metavar=takes, help=does)


def prepare(args: argparse.Namespace) -> None:
    """Check what follows, and make the specs of it: `args.then_specs` and `args.reduce_spec`."""
    if args.then and args.gate != NONE:
        raise InvalidInput(
            "--then does not go with --gate: the next stage would begin before your decision. "
            "Run it as a batch of its own afterwards; --reduce waits for the last decision."
        )
    args.then_specs = [_stage(args, line) for line in args.then or ()]
    args.then_templates = [template_of(spec) for spec in args.then_specs]
    args.reduce_spec = _reduce(args)
    for spec in [*args.then_specs, *([args.reduce_spec] if args.reduce_spec else [])]:
        check_spec(spec)


def check_item(templates: Sequence[Template], item: Item) -> None:
    """Refuse an item that lacks what a later stage names."""
    for each in templates:
        each.check({"item", *(item.columns or ()), "result", "output"})


def programs(args: argparse.Namespace) -> list[str]:
    """What the commands that follow start with."""
    specs = [*args.then_specs, *([args.reduce_spec] if args.reduce_spec else [])]
    return [spec.command[0] for spec in specs if spec.command]


def told(args: argparse.Namespace) -> list[tuple[str, str]]:
    """What follows, in words: each stage, and the reduce."""
    stages = [(f"stage {number}", line) for number, line in enumerate(args.then or (), 2)]
    spec: RunSpec | None = args.reduce_spec
    if spec is None:
        return stages
    leave = ", read-only" if spec.permissions == "read-only" else ""
    agent = f"agent {spec.agent}{leave}" if spec.agent else ""
    return [*stages, ("reduce", spec.function or agent or args.reduce)]


def preview(args: argparse.Namespace) -> dict[str, Any]:
    """The dry run as JSON: what would follow."""
    spec: RunSpec | None = args.reduce_spec
    reduce: dict[str, Any] | None = None
    if spec and spec.command:
        reduce = {"command": list(spec.command)}
    elif spec:
        reduce = (
            {"function": spec.function}
            if spec.function
            else {
                "agent": spec.agent,
                "permissions": spec.permissions,
                "prompt": spec.prompt,
            }
        )
    return {
        **({"then": [list(each.command) for each in args.then_specs]} if args.then_specs else {}),
        **({"reduce": reduce} if reduce else {}),
    }


def lines(args: argparse.Namespace) -> list[str]:
    """The dry run for people."""
    return [f"{name}: {one_line(said)}" for name, said in told(args)]


def _shared(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args.spec, name) for name in SHARED}


def _stage(args: argparse.Namespace, line: str) -> RunSpec:
    return RunSpec(command=_words("--then", line), result=args.result, **_shared(args))


def _words(option: str, line: str) -> tuple[str, ...]:
    """Split as a shell would, which never sees it."""
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise InvalidInput(f"{option}: {str(error).lower()} in {line[:60]!r}.") from None
    if not words:
        raise InvalidInput(f"{option} is empty.")
    return words


def _reduce(args: argparse.Namespace) -> RunSpec | None:
    ways = ("reduce", "reduce_fn", "reduce_prompt")
    given = [way for way in ways if getattr(args, way) is not None]
    if len(given) > 1:
        raise InvalidInput("--reduce, --reduce-fn and --reduce-prompt: name one of the three.")
    if args.reduce_agent and args.reduce_prompt is None:
        raise InvalidInput("--reduce-agent goes with --reduce-prompt, which says what it shall do.")
    if not given:
        return None
    if args.reduce_prompt is not None:
        return _by_agent(args)
    shared = {**_shared(args), "workers": None}
    if args.reduce_fn is not None:
        return RunSpec(function=args.reduce_fn, python=args.python, **shared)
    spec = RunSpec(command=_words("--reduce", args.reduce), **shared)
    if names := template_of(spec).names:
        raise InvalidInput(
            f"--reduce: {{{names[0]}}} names a column, but {{}} is all there is: the file with "
            "the results."
        )
    return spec


def _by_agent(args: argparse.Namespace) -> RunSpec:
    """Found before anything is started: AgentNotReady if it cannot work here."""
    name = args.reduce_agent or args.agent
    if not name:
        raise InvalidInput("--reduce-prompt needs an agent: name it with --reduce-agent.")
    own = run_agents.leave(args)
    if args.agent and args.reduce_agent and args.reduce_agent != args.agent:
        own.pop("model", None)  # another agent knows other models
        own.pop("allow", None)
        own.pop("fallback", None)
    shared = {**_shared(args), "workers": None}
    prompt = run_agents.prompt_text(args.reduce_prompt, "--reduce-prompt")
    host = args.look()
    _ = host.equipment  # settings and programs are what matters here, not the store
    host.close()
    return choosing.equipped_spec(host, RunSpec(agent=name, prompt=prompt, **own, **shared))
