"""hv resume"""

from __future__ import annotations

import argparse

from hypervisor.cli.commands.pause import add_scope, check_scope, scope_text
from hypervisor.cli.output import print_json
from hypervisor.core.errors import EXIT_OK
from hypervisor.queue.context import Context
from hypervisor.runs.run import resume
from hypervisor.runs.status import status
from hypervisor.runs.supervise import supervise

EXAMPLE = """hv resume pages
  hv resume --all"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_scope(parser)


def prepare(args: argparse.Namespace) -> None:
    check_scope(args)


def run(hv: Context, args: argparse.Namespace) -> int:
    changed = resume(hv, args.batch, args.type)
    supervisor = _supervisor(hv, args) if changed else None
    if args.json:
        print_json({"changed": changed, "supervisor": supervisor})
    else:
        what = scope_text(args)
        print(f"{what} goes on" if changed else f"{what} was not paused")
    return EXIT_OK


def _supervisor(hv: Context, args: argparse.Namespace) -> int | None:
    """The one that was there may have left, as there was nothing to do."""
    return supervise(hv) if status(hv, args.batch).stats.remaining else None
