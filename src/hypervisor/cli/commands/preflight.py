"""hv preflight"""

import argparse

from hypervisor.agents.preflight import agent_task
from hypervisor.batches.preflight import Intent, Survey
from hypervisor.batches.preflight_findings import Preflight, costs
from hypervisor.cli.commands import run as running
from hypervisor.cli.output import colour, one_line, respond
from hypervisor.cli.run import agents as run_agents
from hypervisor.cli.run.request import RunRequest, request_of
from hypervisor.cli.run.sources import Source
from hypervisor.cli.run.spec import name_for, spec_of
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL
from hypervisor.queue.context import Context
from hypervisor.queue.task import NewTask
from hypervisor.runs.spec import RunSpec

EXAMPLE = """hv preflight --items 'tasks/*.md' --name inbox
  hv preflight --items rows.csv --workers 4 -- convert {}
  find . -name '*.jpg' | hv preflight -- convert {} {.}.png
  hv preflight --agent auto --items tasks/ --budget 5"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The words of `hv run`, so that one command line serves for both."""
    running.configure(parser)
    parser.usage = "hv preflight [the options of hv run] [-- COMMAND …]"
    group = parser.add_argument_group("what to look at")
    group.add_argument(
        "--known",
        action="append",
        metavar="NAME",
        help="a person or agent there is; with any, other assignees are reported",
    )
    group.add_argument(
        "--in-text",
        action="store_true",
        help="also find the files that the text of task files names in backticks",
    )
    group.add_argument(
        "--details", action="store_true", help="show every example, not only the first few"
    )


def prepare(args: argparse.Namespace) -> int | None:
    """Read the items; nothing is made or changed, here or later."""
    args.dry_run = True  # a skill shall not even make its copy
    request = request_of(args)
    run_agents.check(request)
    spec, agents = run_agents.choose(request, spec_of(request))
    known = None if args.known is None else frozenset(args.known)
    intent = _intent(request, spec, known, args.in_text)
    survey = args.survey = Survey(intent, agents and agents.survey)
    base = NewTask("an item", type=request.tasks.type, requires=request.tasks.requires)
    source = Source(request.items)
    try:
        for item in source:
            survey.add(item)
            if survey.agents is not None:
                survey.agents.add(agent_task(item, base))
    finally:
        source.close()
    return None


def run(hv: Context | None, args: argparse.Namespace) -> int:
    preflight = args.survey.result(hv)
    return respond(
        args,
        preflight,
        lambda: show(preflight, None if args.details else 3),
        code=EXIT_OK if preflight.clear else EXIT_UNSUCCESSFUL,
    )


def _intent(
    request: RunRequest, spec: RunSpec, known: frozenset[str] | None, in_text: bool
) -> Intent:
    """What such a run would be about. Without a command its name says it."""
    name, tasks = request.name, request.tasks
    if name is None and (request.command or request.fn or spec.agent):
        name = name_for(spec, request)
    return Intent(spec.cwd, name, tasks.type, request.workers, tasks.requires, known, in_text)


def show(preflight: Preflight, most: int | None = 3) -> None:
    """The short report first, then the details."""
    print(colour(one_line(preflight.headline), "done" if preflight.clear else "failed"))
    for finding in preflight.findings:
        mark = colour("  ✗ ", "failed") if finding.in_the_way else "  · "
        print(f"{mark}{one_line(finding.said)}")
        shown = finding.examples[:most]
        for example in shown:
            print(f"      {one_line(example)}")
        if finding.examples and finding.total > len(shown):
            print(f"      and {finding.total - len(shown):,} more")
    for line in (*preflight.order, *costs(preflight.estimate), preflight.advice):
        print(f"  {line}")
