"""hv remember"""

import argparse
import os

from hypervisor.cli.arguments import body
from hypervisor.cli.findings import TASK, branch_meant, in_attempt
from hypervisor.cli.output import respond
from hypervisor.core.errors import InvalidInput
from hypervisor.hive.branch import task_here
from hypervisor.hive.remember import check_finding, forget, remember
from hypervisor.queue.context import Context

EXAMPLE = """hv remember 'login.py:40 builds SQL from user input' --branch audit --topic sql
  hv remember @notes.txt --kind decision
  hv remember --forget 1q24bmmy5re9"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="the finding; @FILE reads it from a file, @- from stdin",
    )
    parser.add_argument(
        "--branch",
        help="branch whose agents see it (default: the branch of the current task, else the one "
        "tied to the current git branch)",
    )
    parser.add_argument("--topic", default="", help="topic, in a word or two")
    parser.add_argument(
        "--kind", default="finding", help="finding (default), decision, warning, question …"
    )
    parser.add_argument(
        "--for",
        dest="claim",
        metavar="TOKEN|TASK",
        help="task or claim that the finding comes from; also sets the branch",
    )
    parser.add_argument("--forget", metavar="ID", help="delete a finding")


def prepare(args: argparse.Namespace) -> None:
    if (args.text is None) == (args.forget is None):
        raise InvalidInput("`hv remember` needs a text, or --forget and the id of a finding.")
    args.only_looks = args.forget is not None
    if args.text is not None:
        args.text = body(args.text)
        check_finding(args.text, args.branch or "", args.topic, args.kind)


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.forget is not None:
        gone = forget(hv, args.forget)
        return respond(args, {"forgotten": gone}, f"{gone} deleted")
    claim = args.claim
    if not claim and args.branch is None:  # the task we run for
        claim = task_here(hv, os.environ.get(TASK, ""))
    branch = args.branch if claim else branch_meant(hv, args)
    kept = remember(
        hv,
        args.text,
        branch or "",
        topic=args.topic,
        kind=args.kind,
        claim=claim or "",
        by_agent=in_attempt(),
    )
    known = kept.known
    lines = [f"{kept.id} merged into {known.finding.id}" if kept.joined else kept.id]
    lines += [
        f"may contradict {doubt.other} ({doubt.why}); both are kept" for doubt in known.doubts
    ]
    return respond(args, kept, lines)
