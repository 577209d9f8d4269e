"""hv preflight"""

from __future__ import annotations

import argparse

from hypervisor.agents.preflight import agent_task
from hypervisor.batches.preflight import Intent, Survey
from hypervisor.batches.preflight_findings import Preflight, costs
from hypervisor.cli.commands import run as running
from hypervisor.cli.output import colour, one_line, print_json
from hypervisor.cli.run import agents as run_agents
from hypervisor.cli.run.arguments import name_for, skill_of, spec_of
from hypervisor.cli.run.sources import Source
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL
from hypervisor.queue.context import Context
from hypervisor.queue.task import NewTask

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
    args.skill = skill_of(args)
    run_agents.check(args)
    args.spec = spec_of(args)
    agents = run_agents.survey(args) if args.agent else None
    args.survey = Survey(_intent(args), agents)
    base = NewTask("an item", type=args.type, requires=tuple(args.requires or ()))
    source = Source(args)
    try:
        for item in source:
            args.survey.add(item)
            if agents is not None:
                agents.add(agent_task(item, base))
    finally:
        source.close()
    return None


def run(hv: Context | None, args: argparse.Namespace) -> int:
    found = args.survey.result(hv)
    if args.json:
        print_json(found)
    else:
        show(found, None if args.details else 3)
    return EXIT_OK if found.clear else EXIT_UNSUCCESSFUL


def _intent(args: argparse.Namespace) -> Intent:
    """What a run with these words would be about. Without a command its name says it."""
    spec = args.spec
    name = args.name
    if name is None and (args.command or args.fn or args.agent):
        name = name_for(spec, args)
    known = None if args.known is None else frozenset(args.known)
    return Intent(
        spec.cwd, name, args.type, args.workers, tuple(args.requires or ()), known, args.in_text
    )


def show(found: Preflight, most: int | None = 3) -> None:
    """The short report first, then the details."""
    print(colour(one_line(found.headline), "done" if found.clear else "failed"))
    for finding in found.findings:
        mark = colour("  ✗ ", "failed") if finding.in_the_way else "  · "
        print(f"{mark}{one_line(finding.said)}")
        shown = finding.examples[:most]
        for example in shown:
            print(f"      {one_line(example)}")
        if finding.examples and finding.total > len(shown):
            print(f"      and {finding.total - len(shown):,} more")
    for line in (*found.order, *costs(found.estimate), found.advice):
        print(f"  {line}")
