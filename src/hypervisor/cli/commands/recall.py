"""hv recall"""

import argparse

from hypervisor.cli.findings import branch_meant, reader_here, show
from hypervisor.cli.output import block, clock, one_line, respond
from hypervisor.core.errors import InvalidInput
from hypervisor.hive.recall import joined, recall
from hypervisor.hive.review import must_review
from hypervisor.queue.context import Context

EXAMPLE = """hv recall sql injection --branch security-audit
  hv recall --topic auth --kind decision
  hv recall --joined 1q24bmmy5re9"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", nargs="*", metavar="WORD", help="words to search for")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--branch",
        help="findings of this branch and its ancestors (default: the branch of the current task, "
        "else the one tied to the current git branch, else all)",
    )
    where.add_argument("--all", action="store_true", help="findings of all branches")
    parser.add_argument("--topic", default="", help="only findings on this topic")
    parser.add_argument("--kind", default="", help="only findings of this kind")
    parser.add_argument("--task", default="", metavar="TASK", help="only findings of this task")
    parser.add_argument(
        "--limit", type=int, default=10, metavar="N", help="maximum number of findings (default 10)"
    )
    parser.add_argument(
        "--joined", metavar="ID", help="show one finding in full, with all merged into it"
    )


def prepare(args: argparse.Namespace) -> None:
    if args.joined and args.query:
        raise InvalidInput("--joined takes the id of a finding and no search words.")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.joined:
        return _joined(hv, args)
    branch = None if args.all else branch_meant(hv, args)
    query = " ".join(args.query)
    findings = recall(
        hv,
        query,
        branch,
        topic=args.topic,
        kind=args.kind,
        task=args.task,
        limit=args.limit,
        reader=reader_here(hv),
    )
    return respond(args, findings, lambda: show(findings, review=must_review(hv)))


def _joined(hv: Context, args: argparse.Namespace) -> int:
    found, lines = joined(hv, args.joined, reader_here(hv)), []
    for finding in (known.finding for known in found):
        who = "  ".join(one_line(part) for part in (finding.agent, finding.actor) if part)
        lines.append(
            f"{finding.id}  {clock(finding.at)}  {finding.task or '-'}  {who}  {finding.trust}"
        )
        lines.append(block(finding.text))
    return respond(args, found, lines)
