"""Failures as text: identical ones grouped, each with the last lines of its output."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.cli.output import BOLD, DIM, RED, Line, columns_here, fit, glyphs, one_line
from hypervisor.cli.views import failure
from hypervisor.monitoring.failures import FailureGroup
from hypervisor.queue.task import Task

TITLES = 5


def group_lines(group: FailureGroup, tail: bool) -> list[Line]:
    """One failure with its last lines, or several alike with their titles."""
    if len(group.tasks) == 1:
        printed = [_indented(line) for line in group.tail] if tail else []
        return [[("  ", ""), *failure(group.tasks[0])], *printed]
    count = f"{len(group.tasks):,} {'×' if glyphs().bad == '✗' else 'x'} "
    head: Line = [("  ", ""), (f"{glyphs().bad} ", RED), (count, BOLD), (group.text, RED)]
    return [head, _indented(_titles(group.tasks))]


def _titles(tasks: Sequence[Task]) -> str:
    titles = ", ".join(one_line(task.title) for task in tasks[:TITLES])
    more = len(tasks) - TITLES
    return f"{titles} and {more:,} more" if more > 0 else titles


def _indented(text: str) -> Line:
    return fit([("      ", ""), (text, DIM)], columns_here())
