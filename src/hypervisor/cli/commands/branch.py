"""hv branch"""

import argparse
from collections.abc import Iterator

from hypervisor.cli.output import one_line, respond
from hypervisor.core.errors import InvalidInput
from hypervisor.hive.branch import Branch, branch, branches
from hypervisor.queue.context import Context

EXAMPLE = """hv branch
  hv branch security-audit --parent main
  hv branch login --git feature/login"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="branch to create or change; without it, list all"
    )
    parser.add_argument(
        "--parent", help="branch whose findings its agents also see; '' removes the parent"
    )
    parser.add_argument(
        "--git",
        metavar="BRANCH",
        help="tie it to this git branch: the default branch for work there; '' unties it",
    )


def prepare(args: argparse.Namespace) -> None:
    if args.name is None and (args.parent is not None or args.git is not None):
        raise InvalidInput("--parent and --git need the name of a branch.")
    args.only_looks = args.name is None


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.name is not None:
        made = branch(hv, args.name, args.parent, args.git)
        return respond(args, made, _line(made))
    known = branches(hv)
    return respond(args, known, _tree(known))


def _tree(known: tuple[Branch, ...]) -> Iterator[str]:
    """The branches as a tree; without recursion, as old stores may be nested without limit."""
    names = {branch.name for branch in known}
    children: dict[str, list[Branch]] = {}
    for child in reversed(known):
        children.setdefault(child.parent if child.parent in names else "", []).append(child)
    left = [(0, root) for root in children.get("", ())]
    while left:
        depth, node = left.pop()
        yield "  " * depth + _line(node._replace(parent=""))
        left += [(depth + 1, child) for child in children.get(node.name, ())]


def _line(node: Branch) -> str:
    parent = f"  below {node.parent}" if node.parent else ""
    git = f"  git {node.git}" if node.git else ""
    return one_line(node.name + parent + git)
