"""What `hv run` says before anything runs: the opening, the dry run, where to look later."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator

from hypervisor.batches.pipeline import PipelineRun
from hypervisor.batches.preflight_findings import Preflight
from hypervisor.cli.output import one_line, print_json, say
from hypervisor.cli.run import agents, pipeline
from hypervisor.core.errors import EXIT_OK
from hypervisor.core.text import pluralize
from hypervisor.inputs.template import Item, Template
from hypervisor.runs.run import Submitted

SHOWN = 10
DISK_ONLY = (
    "hv: /dev/shm is not in memory (tmpfs), so this shell's environment was not kept for the run: "
    "its commands get the environment of the supervisor. "
    "Mount a tmpfs on /dev/shm to keep it."
)


def say_opening(whole: PipelineRun, args: argparse.Namespace, found: Preflight | None) -> None:
    """What there is to do, and what should be known of it."""
    lines = [_opening(whole.first, args), *(f"  {each}" for each in pipeline.lines(args))]
    if args.agent:
        lines.append(f"  {agents.opening(args)}")
    if found is not None and (found.findings or found.complete or found.called_off):
        lines.append(f"  {one_line(found.headline)}")
    lines += [f"  {one_line(each.said)}" for each in args.findings if whole.to_do]
    if not whole.first.environment_kept:
        print(DISK_ONLY, file=sys.stderr)
    if args.quiet:
        print("\n".join(lines), file=sys.stderr)
    else:
        say(*lines)


def _opening(found: Submitted, args: argparse.Namespace) -> str:
    parts = [
        f"{found.already_done:,} already done, skipped" if found.already_done else "",
        f"{found.added:,} new" if found.added and found.added != args.count else "",
        f"{found.retried:,} failed before, tried again" if found.retried else "",
        f"{found.still_open:,} still open" if found.still_open else "",
    ]
    said = "; ".join(part for part in parts if part)
    return f"batch {found.batch.name}: {pluralize(args.count, 'item')}" + (
        f" ({said})" if said else ""
    )


def detached(whole: PipelineRun, args: argparse.Namespace, waits: bool) -> int:
    """Where to look, as nobody stays to watch. `waits`: behind a supervisor that was asked to
    end, for the next one."""
    found = whole.first
    if args.json:
        print_json(
            {
                "batch": found.batch.name,
                "id": found.batch.id,
                "to_do": whole.to_do,
                "left_out": args.left_out,
            }
        )
    else:
        name = shlex.quote(found.batch.name)
        if waits:
            print(
                "the supervisor was asked to end: the next one begins when what it runs has ended"
            )
        print(f"runs in the background: hv status {name} --watch · hv summary {name}")
    return EXIT_OK


def preview(args: argparse.Namespace, items: Iterator[Item]) -> int:
    """The dry run: what would be started, and what would follow."""
    template: Template | None = args.template
    shown: list[list[str]] = []
    for item in items:
        if args.agent:
            return agents.show(args, item, pipeline.preview(args), pipeline.lines(args))
        if len(shown) == SHOWN:
            break
        shown.append(template.render(item) if template else [args.fn, item.text])
    if args.json:
        print_json(
            {
                "batch": args.batch_name,
                "items": args.count,
                "commands": shown,
                **pipeline.preview(args),
            }
        )
        return EXIT_OK
    for argv in shown:
        print(one_line(shlex.join(argv)))
    for line in pipeline.lines(args):
        print(line)
    more = f", {args.count - SHOWN:,} of them not shown" if args.count > SHOWN else ""
    print(f"{pluralize(args.count, 'item')}{more} (dry run: nothing was started)")
    return EXIT_OK
