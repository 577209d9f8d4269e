"""The result of a run in a few lines: counts, cost, failures, and what to do next."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

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
from hypervisor.cli.render import money_text, rate, tokens_text
from hypervisor.cli.views import failure
from hypervisor.core.text import pluralize
from hypervisor.inputs.task_files.write_back import Unwritten
from hypervisor.queue.task import Task
from hypervisor.resources.limits import size_text
from hypervisor.runs.monitor import Snapshot, open_tasks
from hypervisor.runs.run import Submitted, Summary

LISTED = 10
STATES = {"done": GREEN, "failed": RED, "cancelled": YELLOW, "blocked": YELLOW, "review": YELLOW}


class Result(NamedTuple):
    """A run that is over."""

    submitted: Submitted
    ended: Mapping[str, int]  # tasks by the state they came into
    last: Snapshot
    summary: Summary
    bad: Sequence[Task]
    took: int
    above: Collection[str] = ()  # tasks whose failure is printed above already

    @property
    def counts(self) -> dict[str, int]:
        return {state: self.ended.get(state, 0) for state in STATES}

    @property
    def left(self) -> int:
        return open_tasks(self.last.status)

    @property
    def is_at_checkpoint(self) -> bool:
        return self.last.status.checkpoint is not None

    @property
    def batch(self) -> str:
        return shlex.quote(self.submitted.batch.name)


def lines(result: Result, stages: Sequence[Line]) -> list[Line]:
    return [
        _counts(result),
        _cost(result),
        *_categories(result.summary),
        *_failures(result),
        *stages,
        *_next(result),
    ]


def unwritten(files: Sequence[Unwritten], batch: str) -> list[Line]:
    """That the result does not show in the task files."""
    if not files:
        return []
    command = f"hv receipt sync {shlex.quote(batch)}"
    return [
        [(f"  {unwritten_text(files)}", RED)],
        [("  the results are kept in the store; ", ""), (command, BOLD), (" writes the files", "")],
    ]


def unwritten_text(files: Sequence[Unwritten]) -> str:
    first = files[0]
    count = pluralize(len(files), "task file")
    return one_line(f"{count} could not be written ({first.path}: {first.reason})")


def _counts(result: Result) -> Line:
    counts, left, stuck = result.counts, result.left, result.last.stuck
    ended, skipped = sum(counts.values()), result.submitted.already_done
    all_done = (not left or result.is_at_checkpoint) and ended == counts["done"]
    rest = "wait behind the checkpoint" if result.is_at_checkpoint else "not finished"
    parts: list[Span] = [
        (f"{count:,} {state}", STATES[state])
        for state, count in counts.items()
        if count or state == "done"
    ]
    parts.append((f"{left - stuck:,} {rest}" if left > stuck else "", YELLOW))
    parts.append((f"{stuck:,} not begun (what came before failed)" if stuck else "", YELLOW))
    parts.append((f"{skipped:,} skipped (done before)" if skipped else "", DIM))
    pace = f" ({rate(ended * 1000 / result.took)})" if ended and result.took > 0 else ""
    mark = (f"{glyphs().good} ", GREEN) if all_done else (f"{glyphs().bad} ", RED)
    return [mark, *joined(parts), (f" in {duration(result.took)}", BOLD), (pace, DIM)]


def _cost(result: Result) -> Line:
    summary, submitted = result.summary, result.submitted
    parts: list[Span] = [
        (f"CPU {summary.cpu_seconds:,.1f} s", ""),
        (f"peak memory {size_text(summary.peak_bytes)}" if summary.peak_bytes else "", ""),
        (pluralize(summary.attempts, "attempt"), ""),
        (f"{tokens_text(summary.tokens)} tokens" if summary.tokens else "", ""),
        (money_text(round(summary.cost * 1e6), summary.estimated) if summary.cost else "", ""),
    ]
    before = submitted.already_done or submitted.retried
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
    new = [task for task in result.bad if task.id not in result.above]
    failures: list[Line] = [[("  ", ""), *failure(task)] for task in new[:LISTED]]
    count = sum(result.counts[state] for state in ("failed", "blocked", "review"))
    more = count - (len(result.bad) - len(new)) - len(failures)
    if result.bad and more > 0:
        list_all = f"hv ls --state failed --batch {result.batch}"
        failures.append([(f"    and {more:,} more: {list_all}", DIM)])
    return [[], *failures] if failures else []


def _next(result: Result) -> list[Line]:
    """What to do next: a command, and what it shows or does."""
    status, counts, left, steps = result.last.status, result.counts, result.left, []
    if status.checkpoint is not None:
        label = one_line(status.checkpoint.label)
        steps.append((f"hv review {result.batch}", f"{label} has ended: look at it and decide"))
    if left and status.pauses:
        steps.append(("stopped", one_line(status.pauses[0].reason or "paused")))
    if result.bad:
        steps.append((f"hv logs {result.bad[0].id}", "what it printed"))
    unfinished = left and not result.is_at_checkpoint
    if counts["failed"] or counts["cancelled"] or counts["blocked"] or unfinished:
        rest = [
            f"the {counts['failed']:,} that failed" if counts["failed"] else "",
            f"the {left:,} not finished" if unfinished else "",
        ]
        steps.append(("the same again", f"runs {' and '.join(filter(None, rest)) or 'the rest'}"))
    if result.bad:
        steps.append((f"hv summary {result.batch}", "every task with its outcome"))
    widest = max((len(command) for command, _ in steps), default=0)
    lines: list[Line] = [
        [("  ", ""), (f"{command:<{widest}}  ", BOLD), (does, DIM)] for command, does in steps
    ]
    return [[], *lines] if lines else []
