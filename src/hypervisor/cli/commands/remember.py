"""hv remember"""

import argparse
import os

from hypervisor.cli.arguments import body
from hypervisor.cli.findings import TASK, branch_meant
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
        help="what you found out; @FILE reads it from a file, @- from stdin",
    )
    parser.add_argument(
        "--branch",
        help="whose agents shall know it (default: that of the task this runs for, else the one "
        "tied to the git branch here)",
    )
    parser.add_argument("--topic", default="", help="what it is about, in a word or two")
    parser.add_argument(
        "--kind", default="finding", help="finding (default), decision, warning, question …"
    )
    parser.add_argument(
        "--for",
        dest="claim",
        metavar="TOKEN|TASK",
        help="whose finding it is; brings the branch along",
    )
    parser.add_argument("--forget", metavar="ID", help="take a finding out for good")


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
        return respond(args, {"forgotten": gone}, f"{gone} is forgotten")
    claim = args.claim
    if not claim and args.branch is None:  # the task we run for
        claim = task_here(hv, os.environ.get(TASK, ""))
    branch = args.branch if claim else branch_meant(hv, args)
    kept = remember(
        hv, args.text, branch or "", topic=args.topic, kind=args.kind, claim=claim or ""
    )
    known = kept.known
    lines = [f"{kept.id} joins {known.finding.id}" if kept.joined else kept.id]
    lines += [f"may contradict {doubt.other} ({doubt.why}); both stay" for doubt in known.doubts]
    return respond(args, kept, lines)
