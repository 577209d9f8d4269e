"""hv branch"""

from __future__ import annotations

import argparse

from hypervisor.cli.output import one_line, print_json
from hypervisor.core.errors import EXIT_OK, InvalidInput
from hypervisor.hive.branch import Branch, branch, branches
from hypervisor.queue.context import Context

EXAMPLE = """hv branch
  hv branch security-audit --parent main
  hv branch login --git feature/login"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="make or change this one; without it, list all"
    )
    parser.add_argument(
        "--parent", help="whose findings its agents see, too; an empty word takes it away"
    )
    parser.add_argument(
        "--git",
        metavar="BRANCH",
        help="who works on this git branch means this branch; an empty word unties it",
    )


def prepare(args: argparse.Namespace) -> None:
    if args.name is None and (args.parent is not None or args.git is not None):
        raise InvalidInput("--parent and --git need the name of a branch.")
    args.only_looks = args.name is None


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.name is not None:
        made = branch(hv, args.name, args.parent, args.git)
        print_json(made) if args.json else print(_line(made))
        return EXIT_OK
    found = branches(hv)
    if args.json:
        print_json(found)
        return EXIT_OK
    _tree(found)
    return EXIT_OK


def _tree(every: tuple[Branch, ...]) -> None:
    """However deep: stores that are older than the limit may have any depth."""
    names = {each.name for each in every}
    below: dict[str, list[Branch]] = {}
    for each in reversed(every):
        below.setdefault(each.parent if each.parent in names else "", []).append(each)
    left = [(0, each) for each in below.get("", ())]
    while left:
        depth, each = left.pop()
        print("  " * depth + _line(each._replace(parent="")))
        left += [(depth + 1, child) for child in below.get(each.name, ())]


def _line(each: Branch) -> str:
    parent = f"  below {each.parent}" if each.parent else ""
    git = f"  git {each.git}" if each.git else ""
    return one_line(each.name + parent + git)
