"""hv pause"""

import argparse

from hypervisor.cli.output import one_line, respond
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.context import Context
from hypervisor.runs.run import pause

EXAMPLE = """hv pause pages --reason 'the disk is nearly full'
  hv pause --type render
  hv pause --all"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_scope(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for all to see")


def run(hv: Context, args: argparse.Namespace) -> int:
    changed = pause(hv, args.batch, args.type, args.reason)
    outcome = "paused; what runs may finish" if changed else "was paused already"
    return respond(args, {"changed": changed}, f"{scope_text(args)} {outcome}")


def add_scope(parser: argparse.ArgumentParser) -> None:
    """What a pause is about; `resume` shares it."""
    parser.add_argument("batch", nargs="?", metavar="BATCH", help="its name or id")
    parser.add_argument("--type", help="all tasks of this type")
    parser.add_argument("--all", action="store_true", help="everything")


def prepare(args: argparse.Namespace) -> None:
    given = [args.batch is not None, args.type is not None, args.all]
    if sum(given) != 1:
        raise InvalidInput("name a BATCH, or --type T, or --all for everything (one of them).")


def scope_text(args: argparse.Namespace) -> str:
    if args.batch is not None:
        return one_line(f"batch {args.batch}")
    return one_line(f"type {args.type}") if args.type is not None else "everything"
