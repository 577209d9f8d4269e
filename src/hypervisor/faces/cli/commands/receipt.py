"""hv receipt"""

from __future__ import annotations

import argparse
import sys

from hypervisor.domain.errors import EXIT_CODES, EXIT_OK, InvalidInput
from hypervisor.faces.cli.output import clock, one_line, print_json
from hypervisor.operations.context import Context
from hypervisor.operations.receipts import receipt, receipts, verify

EXAMPLE = """hv receipt add 1q12deyb47df.1.z06d 'archived: 2026-11-02 | a@b.org | Invoice'
  hv receipt ls review
  hv receipt verify"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("add", "ls", "verify"))
    parser.add_argument("of", nargs="?", metavar="TOKEN|TASK|BATCH")
    parser.add_argument("text", nargs="*", metavar="TEXT", help="one line each (add)")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.action == "verify":
        return _verify(hv, args)
    if args.of is None:
        raise InvalidInput(f"`hv receipt {args.action}` needs a token, task or batch.")
    if args.action == "add":
        written = receipt(hv, args.of, args.text)
        if args.json:
            print_json(written)
        return EXIT_OK
    found = receipts(hv, args.of)
    if args.json:
        print_json(found)
        return EXIT_OK
    for line in found:
        who, what = one_line(line.actor), one_line(line.text)
        print(f"{line.number}  {clock(line.at)}  {line.task}  {who}  {what}")
    return EXIT_OK


def _verify(hv: Context, args: argparse.Namespace) -> int:
    reports = verify(hv, args.of)
    broken = [report for report in reports if report.problem]
    if args.json:
        print_json(reports)
    else:
        for report in broken:
            print(f"hv: chain {report.chain}: {report.problem}", file=sys.stderr)
        lines = sum(report.receipts for report in reports)
        verdict = f"{len(broken)} broken" if broken else "all hold"
        print(f"{lines} receipts in {len(reports)} chains: {verdict}")
        if len(reports) == 1 and not broken:
            print(f"head {reports[0].head}")
    return EXIT_CODES["receipts_broken"] if broken else EXIT_OK
