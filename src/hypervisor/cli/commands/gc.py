"""hv gc"""

import argparse

from hypervisor.cli.output import respond
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.resources.limits import size_text
from hypervisor.runs.outputs.retention import gc

EXAMPLE = "hv gc --dry-run"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say how much, delete nothing")


def run(hv: Context, args: argparse.Namespace) -> int:
    collected = gc(hv, args.dry_run)
    gone = f"{pluralize(collected.outputs, 'output')} ({size_text(collected.bytes)})"
    kept = f"{pluralize(collected.kept, 'output')} ({size_text(collected.kept_bytes)}) kept"
    if args.dry_run:
        text = f"{gone} would be deleted, {kept} (dry run: nothing was changed)"
        return respond(args, collected, text)
    return respond(args, collected, f"{gone} deleted, {kept}")
