"""hv hive"""

import argparse

from hypervisor.cli.findings import show
from hypervisor.cli.output import one_line, respond
from hypervisor.hive.branch_report import BranchReport, HiveReport, headline, hive_report
from hypervisor.queue.context import Context

EXAMPLE = """hv hive
  hv hive security-audit --limit 50"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "branch", nargs="?", metavar="BRANCH", help="this branch and those below (default: all)"
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=10,
        metavar="N",
        help="findings per branch, most confirmed first (default 10)",
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    report = hive_report(hv, args.branch, args.limit)
    return respond(args, report, lambda: _show(report))


def _show(report: HiveReport) -> None:
    if not report.findings:
        print("no findings yet")
    for number, branch in enumerate(branch for branch in report.branches if branch.findings):
        if number:
            print()
        _show_branch(branch)


def _show_branch(report: BranchReport) -> None:
    print(one_line(headline(report)))
    if report.topics:
        topics = ", ".join(f"{topic} {count}" for topic, count in report.topics.items())
        print(f"  topics: {one_line(topics)}")
    show(report.known, with_branch=False)
    if report.distinct > len(report.known):
        print(f"  … and {report.distinct - len(report.known):,} more: hv recall")
