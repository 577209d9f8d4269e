"""hv recall"""

import argparse

from hypervisor.cli.findings import branch_meant, show
from hypervisor.cli.output import block, clock, one_line, respond
from hypervisor.core.errors import InvalidInput
from hypervisor.hive.recall import joined, recall
from hypervisor.queue.context import Context

EXAMPLE = """hv recall sql injection --branch security-audit
  hv recall --topic auth --kind decision
  hv recall --joined 1q24bmmy5re9"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", nargs="*", metavar="WORD", help="what to look for")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--branch",
        help="what this branch and its ancestors know (default: that of the task this runs for, "
        "else the one tied to the git branch here, else all)",
    )
    where.add_argument("--all", action="store_true", help="what any branch knows")
    parser.add_argument("--topic", default="", help="only what is about this")
    parser.add_argument("--kind", default="", help="only findings of this kind")
    parser.add_argument("--task", default="", metavar="TASK", help="only what this task found")
    parser.add_argument(
        "--limit", type=int, default=10, metavar="N", help="at most so many (default 10)"
    )
    parser.add_argument(
        "--joined", metavar="ID", help="one finding in full, with all that joined it"
    )


def prepare(args: argparse.Namespace) -> None:
    if args.joined and args.query:
        raise InvalidInput("--joined takes the id of a finding and no words to look for.")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.joined:
        return _joined(hv, args)
    branch = None if args.all else branch_meant(hv, args)
    query = " ".join(args.query)
    found = recall(
        hv, query, branch, topic=args.topic, kind=args.kind, task=args.task, limit=args.limit
    )
    return respond(args, found, lambda: show(found))


def _joined(hv: Context, args: argparse.Namespace) -> int:
    found, lines = joined(hv, args.joined), []
    for finding in (known.finding for known in found):
        who = "  ".join(one_line(part) for part in (finding.agent, finding.actor) if part)
        lines.append(f"{finding.id}  {clock(finding.at)}  {finding.task or '-'}  {who}")
        lines.append(block(finding.text))
    return respond(args, found, lines)
