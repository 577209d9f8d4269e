"""What came of a run, in a few lines: counts, cost, failures, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence

from hypervisor.cli.output import duration, one_line
from hypervisor.cli.render import (
    BOLD,
    DIM,
    GREEN,
    RED,
    YELLOW,
    Span,
    glyphs,
    joined,
    money_text,
    rate,
    tokens_text,
)
from hypervisor.cli.views import failure
from hypervisor.core.text import pluralize
from hypervisor.inputs.task_files.write_back import Unwritten
from hypervisor.queue.task import Task
from hypervisor.resources.limits import size_text
from hypervisor.runs.run import Submitted, Summary
from hypervisor.runs.status import Status

LISTED = 10
STATES = {"done": GREEN, "failed": RED, "cancelled": YELLOW, "blocked": YELLOW, "review": YELLOW}


def lines(
    submitted: Submitted,
    ended: Mapping[str, int],
    open_tasks: int,
    last: Status,
    summary: Summary,
    bad: Sequence[Task],
    took: int,
    stuck: int = 0,
    above: Collection[str] = (),
    stages: Sequence[list[Span]] = (),
) -> list[list[Span]]:
    """The result block of a run; the failures of `above` stand above it already."""
    name = shlex.quote(submitted.batch.name)
    counts = {state: ended.get(state, 0) for state in STATES}
    return [
        _counts(counts, open_tasks, stuck, submitted.already_done, took, last),
        _cost(summary, bool(submitted.already_done or submitted.retried)),
        *_categories(summary),
        *_failures(bad, sum(counts.values()) - counts["done"] - counts["cancelled"], name, above),
        *stages,
        *_next(counts, open_tasks, last, bad, name),
    ]


def unwritten(files: Sequence[Unwritten], batch: str) -> list[list[Span]]:
    """That what was done does not show in the task files."""
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


def _counts(
    counts: Mapping[str, int], left: int, stuck: int, skipped: int, took: int, last: Status
) -> list[Span]:
    at_checkpoint = last.checkpoint is not None
    all_done = (not left or at_checkpoint) and sum(counts.values()) == counts["done"]
    mark = (f"{glyphs().good} ", GREEN) if all_done else (f"{glyphs().bad} ", RED)
    parts: list[Span] = [
        (f"{count:,} {state}", STATES[state])
        for state, count in counts.items()
        if count or state == "done"
    ]
    rest = "wait behind the checkpoint" if at_checkpoint else "not finished"
    parts.append((f"{left - stuck:,} {rest}" if left > stuck else "", YELLOW))
    parts.append((f"{stuck:,} not begun (what came before failed)" if stuck else "", YELLOW))
    parts.append((f"{skipped:,} skipped (done before)" if skipped else "", DIM))
    ended = sum(counts.values())
    pace = f" ({rate(ended * 1000 / took)})" if ended and took > 0 else ""
    return [mark, *joined(parts), (f" in {duration(took)}", BOLD), (pace, DIM)]


def _cost(summary: Summary, before: bool) -> list[Span]:
    parts: list[Span] = [
        (f"CPU {summary.cpu_seconds:,.1f} s", ""),
        (f"peak memory {size_text(summary.peak_bytes)}" if summary.peak_bytes else "", ""),
        (pluralize(summary.attempts, "attempt"), ""),
        (f"{tokens_text(summary.tokens)} tokens" if summary.tokens else "", ""),
        (money_text(round(summary.cost * 1e6), summary.estimated) if summary.cost else "", ""),
    ]
    return [("  all runs of the batch: " if before else "  ", DIM), *joined(parts)]


def _categories(summary: Summary) -> list[list[Span]]:
    if not summary.categories:
        return []
    parts: list[Span] = [
        (f"{count:,} {one_line(name)}", "") for name, count in summary.categories.items()
    ]
    more = len(parts) - LISTED
    return [[("  ", ""), *joined(parts[:LISTED]), (f" and {more} more" if more > 0 else "", DIM)]]


def _failures(
    bad: Sequence[Task], count: int, name: str, above: Collection[str]
) -> list[list[Span]]:
    untold = [task for task in bad if task.id not in above]
    found = [[("  ", ""), *failure(task)] for task in untold[:LISTED]]
    more = count - (len(bad) - len(untold)) - len(found)
    if bad and more > 0:
        found.append([(f"    and {more:,} more: hv ls --state failed --batch {name}", DIM)])
    return [[("", "")], *found] if found else []


def _next(
    counts: Mapping[str, int], left: int, last: Status, bad: Sequence[Task], name: str
) -> list[list[Span]]:
    told: list[tuple[str, str]] = []
    if last.checkpoint is not None:
        chunk = last.checkpoint
        what = f"{one_line(chunk.label)} has ended: look at it and decide"
        told.append((f"hv review {name}", what))
    if left and last.pauses:
        told.append(("stopped", one_line(last.pauses[0].reason or "paused")))
    if bad:
        told.append((f"hv logs {bad[0].id}", "what it printed"))
    unfinished = left and last.checkpoint is None
    if counts["failed"] or counts["cancelled"] or counts["blocked"] or unfinished:
        rest = [
            f"the {counts['failed']:,} that failed" if counts["failed"] else "",
            f"the {left:,} not finished" if unfinished else "",
        ]
        what = " and ".join(part for part in rest if part) or "the rest"
        told.append(("the same again", f"runs {what}"))
    if bad:
        told.append((f"hv summary {name}", "every task with its outcome"))
    widest = max((len(how) for how, _ in told), default=0)
    lines: list[list[Span]] = [
        [("  ", ""), (f"{how:<{widest}}  ", BOLD), (what, DIM)] for how, what in told
    ]
    return [[("", "")], *lines] if lines else []
