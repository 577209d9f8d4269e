"""The result of a run in a few lines: counts, cost, failures, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from hypervisor.batches.submit import Submitted
from hypervisor.batches.summary import Summary
from hypervisor.cli.output import (
    BOLD,
    DIM,
    GREEN,
    RED,
    YELLOW,
    Line,
    Span,
    duration,
    glyphs,
    joined,
    one_line,
)
from hypervisor.cli.render import cost_text, rate, tokens_text
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.monitoring.snapshot import Snapshot, open_tasks
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.message import question_of
from hypervisor.queue.task import Task
from hypervisor.resources.limits import size_text

if TYPE_CHECKING:
    from hypervisor.batches.write_back import Unwritten
    from hypervisor.monitoring.failures import FailureGroup

LISTED = 10
STATES = {"done": GREEN, "failed": RED, "cancelled": YELLOW, "blocked": YELLOW, "review": YELLOW}


class Result(NamedTuple):
    """A run that has ended."""

    submitted: Submitted
    ended: Mapping[str, int]  # number of tasks by the state they ended in
    last: Snapshot
    summary: Summary
    bad: Sequence[Task]
    groups: Sequence[FailureGroup]
    took: int
    above: Collection[str] = ()  # tasks whose failure is already printed above
    undecided: int = 0  # tasks that were not run because they are in the inbox or in review
    shows_tails: bool = True  # False: the outputs are already printed above
    in_clones: bool = False  # the work is in clones, and nothing merges it

    @property
    def counts(self) -> dict[str, int]:
        return {state: self.ended.get(state, 0) for state in STATES}

    @property
    def left(self) -> int:
        return open_tasks(self.last.status)

    @property
    def is_at_checkpoint(self) -> bool:
        return self.last.status.checkpoint is not None

    def shows_more(self, group: FailureGroup) -> bool:
        """Whether there is more to show of these failures than what is above."""
        (first, *others) = group.tasks
        return bool(others or first.id not in self.above or (self.shows_tails and group.tail))

    @property
    def batch(self) -> str:
        return shlex.quote(self.submitted.batch.name)


def lines(result: Result, stages: Sequence[Line]) -> list[Line]:
    return [
        _counts(result),
        *_unchanged(result.summary),
        _cost(result),
        *_categories(result.summary),
        *_failures(result),
        *stages,
        *_next(result),
    ]


def unwritten(files: Sequence[Unwritten], batch: str) -> list[Line]:
    """The message about task files that could not be updated."""
    if not files:
        return []
    command = f"hv receipt sync {shlex.quote(batch)}"
    return [
        [(f"  {unwritten_text(files)}", RED)],
        [("  the results are kept in the store; to write the files: ", ""), (command, BOLD)],
    ]


def unwritten_text(files: Sequence[Unwritten]) -> str:
    first = files[0]
    count = pluralize(len(files), "task file")
    return one_line(f"{count} could not be written ({first.path}: {first.reason})")


def _counts(result: Result) -> Line:
    counts, left, stuck = result.counts, result.left, result.last.stuck
    ended, skipped = sum(counts.values()), result.submitted.already_done
    all_done = (not left or result.is_at_checkpoint) and ended == counts["done"]
    all_done = all_done and not result.undecided
    rest = "waiting for the checkpoint" if result.is_at_checkpoint else "not finished"
    parts: list[Span] = [
        (f"{count:,} {state_name(state)}", STATES[state])
        for state, count in counts.items()
        if count or state == "done"
    ]
    parts.append((f"{left - stuck:,} {rest}" if left > stuck else "", YELLOW))
    held = f"{result.undecided:,} not run (in the inbox or in review)" if result.undecided else ""
    parts.append((held, YELLOW))
    parts.append((f"{stuck:,} not started (the previous stage failed)" if stuck else "", YELLOW))
    parts.append((f"{skipped:,} skipped (already done)" if skipped else "", DIM))
    pace = f" ({rate(ended * 1000 / result.took)})" if ended and result.took > 0 else ""
    mark = (f"{glyphs().good} ", GREEN) if all_done else (f"{glyphs().bad} ", RED)
    return [mark, *joined(parts), (f" in {duration(result.took)}", BOLD), (pace, DIM)]


def _unchanged(summary: Summary) -> list[Line]:
    return [[(f"  {summary.unchanged:,} changed nothing", YELLOW)]] if summary.unchanged else []


def _cost(result: Result) -> Line:
    summary, submitted = result.summary, result.submitted
    parts: list[Span] = [
        (f"CPU {summary.cpu_seconds:,.1f} s", ""),
        (f"peak memory {size_text(summary.peak_bytes)}" if summary.peak_bytes else "", ""),
        (pluralize(summary.attempts, "attempt"), ""),
        (f"{tokens_text(summary.tokens)} tokens" if summary.tokens else "", ""),
        (cost_text(round(summary.cost * 1e6), summary.estimated) if summary.cost else "", ""),
    ]
    before = submitted.already_done or submitted.retried or submitted.redone
    return [("  all runs of the batch: " if before else "  ", DIM), *joined(parts)]


def _categories(summary: Summary) -> list[Line]:
    if not summary.categories:
        return []
    parts: list[Span] = [
        (f"{count:,} {one_line(name)}", "") for name, count in summary.categories.items()
    ]
    more = len(parts) - LISTED
    return [[("  ", ""), *joined(parts[:LISTED]), (f" and {more} more" if more > 0 else "", DIM)]]


def _failures(result: Result) -> list[Line]:
    """The failures in groups; those printed above only if there is more to show of them."""
    if not result.groups:
        return []
    from hypervisor.cli.failures import group_lines

    groups = [group for group in result.groups if result.shows_more(group)]
    shown = groups[:LISTED]
    lines = [line for group in shown for line in group_lines(group, result.shows_tails)]
    count = sum(result.counts[state] for state in ("failed", "blocked", "review"))
    hidden = sum(len(group.tasks) for group in groups[LISTED:])
    more = max(count - sum(len(group.tasks) for group in result.groups), 0) + hidden
    if groups and more:
        list_all = f"hv ls --state failed --batch {result.batch}"
        lines.append([(f"    and {more:,} more: {list_all}", DIM)])
    return [[], *lines] if lines else []


def _in_clones(result: Result) -> list[tuple[str, str]]:
    """Where the work is, and how to get it."""
    if not result.in_clones or not result.counts["done"]:
        return []
    return [
        ("hv diff TASK", "what a task changed in its clone; your checkout is as it was"),
        (f"hv land {result.batch}", f"merge the finished work into the branch hv/{result.batch}"),
    ]


def _next(result: Result) -> list[Line]:
    """The next steps: a command and its purpose."""
    status, counts, left, steps = result.last.status, result.counts, result.left, []
    if status.checkpoint is not None:
        label = one_line(status.checkpoint.label)
        steps.append((f"hv review {result.batch}", f"{label} has finished: review it and decide"))
    if counts["review"]:
        steps.append(_review(result))
    if asking := [task.id for task in result.bad if question_of(task)]:
        steps.append((f"hv answer {asking[0]} 'TEXT'", "answer it; it continues"))
    if len(result.bad) == 1:
        steps.append((f"hv logs {result.bad[0].id}", "its output"))
    elif result.bad:
        steps.append((f"hv logs {result.batch} --failed", "their output"))
    steps += _in_clones(result)
    unfinished = 0 if result.is_at_checkpoint else left
    if counts["failed"] or counts["cancelled"] or counts["blocked"] or unfinished:
        steps.append(("run the same command again", _purpose(counts["failed"], unfinished)))
    if result.bad:
        steps.append((f"hv summary {result.batch}", "every task with its outcome"))
    widest = max((len(command) for command, _ in steps), default=0)
    lines: list[Line] = [
        [("  ", ""), (f"{command:<{widest}}  ", BOLD), (does, DIM)] for command, does in steps
    ]
    if left and status.pauses:
        lines.insert(0, [(f"  stopped: {one_line(status.pauses[0].reason or 'paused')}", "")])
    return [[], *lines] if lines else []


def _purpose(failed: int, unfinished: int) -> str:
    """What running the same command again does."""
    if failed and unfinished:
        return f"to retry {pluralize(failed, 'failed task')} and run {unfinished:,} unfinished"
    if unfinished:
        return f"to run {pluralize(unfinished, 'unfinished task')}"
    return f"to retry {pluralize(failed, 'failed task')}" if failed else "to retry the rest"


def _review(result: Result) -> tuple[str, str]:
    """The next step for tasks in review: a command and its purpose."""
    in_review = [task.id for task in result.bad if task.state == "review"]
    if len(in_review) == 1 == result.counts["review"]:
        return f"hv diff {in_review[0]}", "what it changed; then hv approve, reject or retry it"
    command = f"hv ls --state in-review --batch {result.batch}"
    return command, "the tasks in review; then hv approve, reject or retry each"
