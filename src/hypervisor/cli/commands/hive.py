"""hv hive"""

import argparse

from hypervisor.cli.findings import in_attempt, reader_here, show
from hypervisor.cli.output import one_line, respond
from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.hive.branch_report import BranchReport, HiveReport, headline, hive_report
from hypervisor.hive.finding import Finding, Known
from hypervisor.hive.remember import forget
from hypervisor.hive.review import approve_findings, must_review, unreviewed_findings
from hypervisor.queue.context import Context

EXAMPLE = """hv hive
  hv hive security-audit --limit 50
  hv hive --unreviewed
  hv hive --approve 1q24bmmy5re9"""
MAX_UNREVIEWED = 100


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "branch", nargs="?", metavar="BRANCH", help="this branch and those below (default: all)"
    )
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="findings per branch, most confirmed first (default 10); with --unreviewed, in all "
        f"(default {MAX_UNREVIEWED})",
    )
    review = parser.add_mutually_exclusive_group()
    review.add_argument(
        "--unreviewed",
        action="store_true",
        help="list findings of agents, of BRANCH only, that nobody has reviewed",
    )
    review.add_argument(
        "--approve",
        nargs="+",
        metavar="ID",
        help="approve findings: agents of other branches may get them",
    )
    review.add_argument("--reject", nargs="+", metavar="ID", help="delete findings")


def prepare(args: argparse.Namespace) -> None:
    if args.branch is not None and (args.approve or args.reject):
        raise InvalidInput("--approve and --reject take ids of findings, and no branch.")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.approve:
        approved = approve_findings(hv, args.approve, by_agent=in_attempt())
        done = f"{pluralize(len(approved), 'finding')} approved"
        return respond(args, {"approved": approved}, done)
    if args.reject:
        deleted = [forget(hv, finding) for finding in args.reject]
        return respond(args, {"deleted": deleted}, f"{pluralize(len(deleted), 'finding')} deleted")
    if args.unreviewed:
        if in_attempt():
            raise InvalidInput("only a person may review findings.")
        found = unreviewed_findings(hv, args.branch, args.limit or MAX_UNREVIEWED)
        return respond(args, found, lambda: _show_unreviewed(found))
    limit = 10 if args.limit is None else args.limit
    report = hive_report(hv, args.branch, limit, reader=reader_here(hv))
    return respond(args, report, lambda: _show(report, must_review(hv)))


def _show_unreviewed(found: tuple[Finding, ...]) -> None:
    if not found:
        print("no findings to review")
        return
    show(tuple(Known(finding) for finding in found))
    print("approve with `hv hive --approve ID`, delete with `hv hive --reject ID`")


def _show(report: HiveReport, review: bool) -> None:
    if not report.findings:
        print("no findings yet")
    for number, branch in enumerate(branch for branch in report.branches if branch.findings):
        if number:
            print()
        _show_branch(branch, review)


def _show_branch(report: BranchReport, review: bool) -> None:
    print(one_line(headline(report)))
    if report.topics:
        topics = ", ".join(f"{topic} {count}" for topic, count in report.topics.items())
        print(f"  topics: {one_line(topics)}")
    show(report.known, with_branch=False, review=review)
    if report.distinct > len(report.known):
        print(f"  … and {report.distinct - len(report.known):,} more: hv recall")
