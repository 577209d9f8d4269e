"""hv gc"""

from __future__ import annotations

import argparse

from hypervisor.cli.output import print_json
from hypervisor.core.errors import EXIT_OK
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.resources.limits import size_text
from hypervisor.runs.outputs.retention import gc

EXAMPLE = "hv gc --dry-run"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say how much, delete nothing")


def run(hv: Context, args: argparse.Namespace) -> int:
    found = gc(hv, args.dry_run)
    if args.json:
        print_json(found)
        return EXIT_OK
    gone = f"{pluralize(found.outputs, 'output')} ({size_text(found.bytes)})"
    kept = f"{pluralize(found.kept, 'output')} ({size_text(found.kept_bytes)}) kept"
    if args.dry_run:
        print(f"{gone} would be deleted, {kept} (dry run: nothing was changed)")
    else:
        print(f"{gone} deleted, {kept}")
    return EXIT_OK
