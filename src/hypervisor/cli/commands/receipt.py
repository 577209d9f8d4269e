"""hv receipt"""

import argparse
import shlex
import sys

from hypervisor.cli.arguments import synonym
from hypervisor.cli.output import clock, confirm, one_line, respond
from hypervisor.core.errors import EXIT_OK, EXIT_RECEIPTS_BROKEN, EXIT_UNSUCCESSFUL, InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.receipts import receipt, receipts

EXAMPLE = """hv receipt add 1q12deyb47df.1.z06dk3w8m1x5t7qa 'archived: a@b.org | Invoice'
  hv receipt ls review
  hv receipt verify
  hv receipt sync review"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        type=synonym(list="ls"),
        choices=("add", "ls", "verify", "sync"),
        help="add receipts, list them (ls), verify that none was tampered with, or sync missing "
        "ones to task files",
    )
    parser.add_argument(
        "of",
        nargs="?",
        metavar="TOKEN|TASK|BATCH",
        help="add: the token of a claim, or a task; ls: a batch or a task; verify: the same "
        "(default: all); sync: a batch",
    )
    parser.add_argument("text", nargs="*", metavar="TEXT", help="add: one receipt each")


def prepare(args: argparse.Namespace) -> None:
    if args.action != "verify" and args.of is None:
        wanted = "token or task" if args.action == "add" else "batch or task"
        raise InvalidInput(f"`hv receipt {args.action}` needs a {wanted}.")
    if args.action != "add" and args.text:
        raise InvalidInput(f"`hv receipt {args.action}` takes only one batch or task.")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.action == "verify":
        return _verify(hv, args)
    if args.action == "sync":
        return _sync(hv, args)
    if args.action == "add":
        added = receipt(hv, args.of, args.text)
        return confirm(args, added, f"{pluralize(len(args.text), 'receipt')} added")
    kept = receipts(hv, args.of)
    lines = (
        f"{r.number}  {clock(r.at)}  {r.task}  {one_line(r.actor)}  {one_line(r.text)}"
        for r in kept
    )
    return respond(args, kept, lines)


def _sync(hv: Context, args: argparse.Namespace) -> int:
    from hypervisor.batches.receipts import unwritten_files, write_receipts  # not to add one
    from hypervisor.cli.result import unwritten_text

    changed = write_receipts(hv, args.of)
    behind = unwritten_files(hv, args.of)
    if behind:
        again = f"hv receipt sync {shlex.quote(args.of)}"
        kept = f"{unwritten_text(behind)}. The results are kept in the store; run `{again}` again."
        print(f"hv: {one_line(kept)}", file=sys.stderr)
    return respond(
        args,
        {"files": changed, "unwritten": len(behind)},
        f"{pluralize(changed, 'file')} written",
        code=EXIT_UNSUCCESSFUL if behind else EXIT_OK,
    )


def _verify(hv: Context, args: argparse.Namespace) -> int:
    from hypervisor.batches.receipts import verify

    reports = verify(hv, args.of)
    broken = [report for report in reports if report.problem]
    for report in broken if not args.json else ():
        print(f"hv: {one_line(f'chain {report.chain}: {report.problem}')}", file=sys.stderr)
    receipts = pluralize(sum(report.receipts for report in reports), "receipt")
    verdict = f"{len(broken)} broken" if broken else "all valid"
    lines = [f"{receipts} in {pluralize(len(reports), 'chain')}: {verdict}"]
    lines += [f"head {reports[0].head}"] if len(reports) == 1 and not broken else []
    return respond(args, reports, lines, code=EXIT_RECEIPTS_BROKEN if broken else EXIT_OK)
