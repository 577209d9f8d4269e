"""Findings as text. Their text is untrusted: it is escaped, and one line unless in full."""

import argparse
import os
import sys

from hypervisor.cli.output import columns_here, cut, one_line
from hypervisor.hive.branch import branch_here, task_here
from hypervisor.hive.finding import Doubt, Known
from hypervisor.queue.context import Context

TASK = "HV_TASK"


def show(findings: tuple[Known, ...], with_branch: bool = True, review: bool = False) -> None:
    """`review`: mark those that no person has reviewed."""
    for known in findings:
        finding = known.finding
        about = [
            finding.branch if with_branch else "",
            finding.topic,
            finding.kind if finding.kind != "finding" else "",
            "unreviewed" if review and finding.trust == "agent" else "",
        ]
        words = [finding.id, *(one_line(word) for word in about if word)]
        print(_fitting("  ".join([*words, one_line(finding.text)])))
        if known.sources > 1:
            print(f"    found by {known.sources} agents, {known.times} times")
        for wording in known.also:
            print(_fitting(f"    also: {one_line(wording)}"))
        for doubt in known.doubts:
            print(_fitting(f"    {_doubt(doubt)}"))


def in_attempt() -> bool:
    """Whether the program runs inside an attempt, so for an agent and not for a person."""
    return bool(os.environ.get(TASK))


def reader_here(hv: Context) -> str | None:
    """The branch of the agent that reads, None for a person."""
    if not in_attempt():
        return None
    return branch_here(hv, "/", task) if (task := task_here(hv, os.environ[TASK])) else ""


def branch_meant(hv: Context, args: argparse.Namespace) -> str | None:
    """--branch, else the branch of the current task, else the one tied to the git branch."""
    if args.branch is not None:
        return str(args.branch)
    return branch_here(hv, os.getcwd(), os.environ.get(TASK, ""))


def _doubt(doubt: Doubt) -> str:
    return f"in doubt ({one_line(doubt.why)}): {doubt.other}  {one_line(doubt.text)}"


def _fitting(line: str) -> str:
    """The line, cut to the terminal's width; in full when piped."""
    return cut(line, columns_here()) if sys.stdout.isatty() else line
