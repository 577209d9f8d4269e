"""hv hive"""

from __future__ import annotations

import argparse

from hypervisor.cli.findings import show
from hypervisor.cli.output import one_line, print_json
from hypervisor.core.errors import EXIT_OK
from hypervisor.hive.branch_report import BranchReport, headline, hive_report
from hypervisor.queue.context import Context

EXAMPLE = """hv hive
  hv hive security-audit --limit 50"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "branch", nargs="?", metavar="BRANCH", help="with all branches below it (default: all)"
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=10,
        metavar="N",
        help="so many findings of each branch, those first that most agents saw (default 10)",
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    report = hive_report(hv, args.branch, args.limit)
    if args.json:
        print_json(report)
        return EXIT_OK
    if not report.findings:
        print("nothing was remembered yet")
    for number, each in enumerate(each for each in report.branches if each.findings):
        if number:
            print()
        _branch(each)
    return EXIT_OK


def _branch(report: BranchReport) -> None:
    print(one_line(headline(report)))
    if report.topics:
        topics = ", ".join(f"{topic} {count}" for topic, count in report.topics.items())
        print(f"  topics: {one_line(topics)}")
    show(report.known, with_branch=False)
    if report.distinct > len(report.known):
        print(f"  … and {report.distinct - len(report.known):,} more: `hv recall` finds them")
