"""hv pause"""

import argparse

from hypervisor.cli.output import confirm, one_line
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.context import Context
from hypervisor.runs.control import pause

EXAMPLE = """hv pause pages --reason 'the disk is nearly full'
  hv pause --type render
  hv pause --all"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_scope(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="reason, shown in the status")


def run(hv: Context, args: argparse.Namespace) -> int:
    changed = pause(hv, args.batch, args.type, args.reason)
    outcome = "paused; running attempts will finish" if changed else "is already paused"
    return confirm(args, {"changed": changed}, f"{scope_text(args)} {outcome}")


def add_scope(parser: argparse.ArgumentParser) -> None:
    """The options for what to pause; also used by `resume`."""
    parser.add_argument("named", nargs="?", metavar="BATCH", help="name or id of a batch")
    parser.add_argument("--batch", metavar="NAME", help="the same as BATCH")
    parser.add_argument("--type", help="all tasks of this type")
    parser.add_argument("--all", action="store_true", help="everything")


def prepare(args: argparse.Namespace) -> None:
    given = [args.named is not None, args.batch is not None, args.type is not None, args.all]
    if sum(given) != 1:
        raise InvalidInput("give one of: a BATCH, --type TYPE, or --all for everything.")
    args.batch = args.named if args.batch is None else args.batch


def scope_text(args: argparse.Namespace) -> str:
    if args.batch is not None:
        return one_line(f"batch {args.batch}")
    return one_line(f"type {args.type}") if args.type is not None else "everything"
