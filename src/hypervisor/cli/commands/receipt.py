"""hv receipt"""

import argparse
import shlex
import sys

from hypervisor.cli.output import clock, one_line, respond
from hypervisor.core.errors import EXIT_OK, EXIT_RECEIPTS_BROKEN, EXIT_UNSUCCESSFUL, InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.receipts import receipt, receipts, unwritten_files, verify, write_receipts

EXAMPLE = """hv receipt add 1q12deyb47df.1.z06dk3w8m1x5t7qa 'archived: a@b.org | Invoice'
  hv receipt ls review
  hv receipt verify
  hv receipt sync review"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("add", "ls", "verify", "sync"),
        help="write some, list them, check that they hold, write what task files lack",
    )
    parser.add_argument(
        "of",
        nargs="?",
        metavar="TOKEN|TASK|BATCH",
        help="add: your token, or a task; ls and verify: a batch or a task (verify: all if none); "
        "sync: a batch",
    )
    parser.add_argument("text", nargs="*", metavar="TEXT", help="one line each (add)")


def prepare(args: argparse.Namespace) -> None:
    if args.action != "verify" and args.of is None:
        wanted = "token or task" if args.action == "add" else "batch or task"
        raise InvalidInput(f"`hv receipt {args.action}` needs a {wanted}.")
    if args.action != "add" and args.text:
        raise InvalidInput(f"`hv receipt {args.action}` takes one batch or task, nothing more.")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.action == "verify":
        return _verify(hv, args)
    if args.action == "sync":
        return _sync(hv, args)
    if args.action == "add":
        return respond(args, receipt(hv, args.of, args.text))
    kept = receipts(hv, args.of)
    lines = (
        f"{r.number}  {clock(r.at)}  {r.task}  {one_line(r.actor)}  {one_line(r.text)}"
        for r in kept
    )
    return respond(args, kept, lines)


def _sync(hv: Context, args: argparse.Namespace) -> int:
    from hypervisor.cli.result import unwritten_text  # not for every receipt

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
    reports = verify(hv, args.of)
    broken = [report for report in reports if report.problem]
    for report in broken if not args.json else ():
        print(f"hv: {one_line(f'chain {report.chain}: {report.problem}')}", file=sys.stderr)
    receipts = pluralize(sum(report.receipts for report in reports), "receipt")
    verdict = f"{len(broken)} broken" if broken else "all hold"
    lines = [f"{receipts} in {pluralize(len(reports), 'chain')}: {verdict}"]
    lines += [f"head {reports[0].head}"] if len(reports) == 1 and not broken else []
    return respond(args, reports, lines, code=EXIT_RECEIPTS_BROKEN if broken else EXIT_OK)
