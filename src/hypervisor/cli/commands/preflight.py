"""hv preflight"""

import argparse

from hypervisor.agents.preflight import agent_task
from hypervisor.batches.preflight import RunIntent, Survey
from hypervisor.batches.preflight_findings import Preflight, costs
from hypervisor.cli.commands import run as running
from hypervisor.cli.output import colour, one_line, respond
from hypervisor.cli.parser import Parser
from hypervisor.cli.run import agents as run_agents
from hypervisor.cli.run.request import RunRequest, request_of
from hypervisor.cli.run.sources import Source
from hypervisor.cli.run.spec import name_for, spec_of
from hypervisor.cli.run.workspaces import item_files
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL
from hypervisor.queue.context import Context
from hypervisor.queue.task import NewTask
from hypervisor.runs.check_spec import with_workspace
from hypervisor.runs.spec import RunSpec

EXAMPLE = """hv preflight --items 'tasks/*.md' --name inbox
  hv preflight --items rows.csv --workers 4 -- convert {}
  find . -name '*.jpg' | hv preflight -- convert {} {.}.png
  hv preflight --agent auto --items tasks/ --budget 5"""


def configure(parser: Parser) -> None:
    """The same arguments as `hv run`."""
    running.configure(parser)
    parser.usage = "hv preflight [the options of hv run] [-- COMMAND …]"
    parser.common |= {"known", "in_text", "details"}
    group = parser.add_argument_group("checks")
    group.add_argument(
        "--known",
        action="append",
        metavar="NAME",
        help="name of a known assignee; others are reported; repeatable",
    )
    group.add_argument(
        "--in-text",
        action="store_true",
        help="also check files named in backticks in the text of task files",
    )
    group.add_argument(
        "--details", action="store_true", help="show all examples instead of the first few"
    )


def prepare(args: argparse.Namespace) -> int | None:
    """Read the items; nothing is made or changed, here or later."""
    args.dry_run = True  # a skill must not even make its copy
    request = request_of(args)
    run_agents.check(request)
    spec, agents = run_agents.choose(request, spec_of(request))
    known = None if args.known is None else frozenset(args.known)
    intent = _intent(request, spec, known, args.in_text)
    files = item_files(request, with_workspace(spec))
    survey = args.survey = Survey(intent, agents and agents.survey, files)
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
) -> RunIntent:
    """The intent of such a run; without a command, the name alone identifies its batch."""
    name, tasks = request.name, request.tasks
    if name is None and (request.command or request.fn or spec.agent):
        name = name_for(spec, request)
    return RunIntent(
        spec.cwd,
        name,
        tasks.type,
        request.workers,
        tasks.requires,
        known=known,
        in_text=in_text,
        rerun=request.rerun,
    )


def show(preflight: Preflight, most: int | None = 3) -> None:
    """The short report first, then the details."""
    print(colour(one_line(preflight.headline), "done" if preflight.clear else "failed"))
    for finding in preflight.findings:
        mark = colour("  ✗ ", "failed") if finding.in_the_way else "  · "
        print(f"{mark}{one_line(finding.message)}")
        shown = finding.examples[:most]
        for example in shown:
            print(f"      {one_line(example)}")
        if finding.examples and finding.total > len(shown):
            print(f"      and {finding.total - len(shown):,} more")
    for line in (*preflight.order, *costs(preflight.estimate), preflight.advice):
        print(f"  {line}")
