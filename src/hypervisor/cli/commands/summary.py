"""hv summary"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import islice

from hypervisor.batches.pipeline_names import batches_from
from hypervisor.batches.pipeline_status import pattern
from hypervisor.batches.summary import Summary, whole_summary
from hypervisor.cli.json_form import plain
from hypervisor.cli.latest import add_batch, named_or_latest
from hypervisor.cli.output import (
    colour,
    columns_here,
    duration,
    glyphs,
    long_table,
    one_line,
    print_json_object,
    print_lines,
)
from hypervisor.cli.render import WIDE
from hypervisor.cli.stages import stage_lines
from hypervisor.core.errors import EXIT_OK
from hypervisor.core.text import money_text, pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.resources.limits import size_text
from hypervisor.runs.results import PAGE, reports
from hypervisor.runs.spec import TaskReport

EXAMPLE = """hv summary
  hv summary pages
  hv summary pages --json > pages.json"""
FIRST = ("failed", "blocked", "review", "cancelled", "in_progress", "merging", "active", "waiting")
MAX_ROWS = 40
MAX_SORTED = 20_000  # tasks
MAX_CHUNKS = 12
HEAD: tuple[str, ...] = ("ID", "STATE", "TRIES", "TOOK", "CPU", "MEMORY", "TITLE")


def configure(parser: argparse.ArgumentParser) -> None:
    add_batch(parser)
    parser.add_argument(
        "--all", action="store_true", help="list all tasks (on a terminal, the default is 40)"
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    result = whole_summary(hv, named_or_latest(hv, args.batch), tasks=False)
    whole = pattern(hv, result.id)
    if args.json:
        answer = plain(result) | {"tasks": _reports(hv, result)}
        print_json_object(answer if whole is None else answer | plain(whole))
        return EXIT_OK
    print("\n".join(_head(result)))
    if whole and whole.unsuccessful:
        failed = f"did not succeed: {one_line(', '.join(whole.unsuccessful))}"
        print("  " + colour(failed, "failed"))
    print_lines(stage_lines(whole, columns_here()) if whole else ())
    if result.total:
        print()
        _print_tasks(hv, result, args.all)
    return EXIT_OK


def _print_tasks(hv: Context, result: Summary, everything: bool) -> None:
    """A very large batch is never held in memory: each state in the order of its ids."""
    if sys.stdout.isatty() and not everything:
        _print_pages([nsmallest(MAX_ROWS, _reports(hv, result), key=_order)])
        if result.total > MAX_ROWS:
            print(f"and {pluralize(result.total - MAX_ROWS, 'more task')}: --all shows them")
    elif result.total <= MAX_SORTED:
        _print_pages([sorted(_reports(hv, result), key=_order)])
    else:
        states = sorted(result.states, key=_rank)
        _print_pages(page for state in states for page in _pages(_reports(hv, result, state)))


def _reports(hv: Context, result: Summary, state: str | None = None) -> Iterator[TaskReport]:
    """The tasks of the batch and of its later stages."""
    for batch in batches_from(hv, result.id):
        yield from reports(hv, batch, state=state)


def _pages(tasks: Iterator[TaskReport]) -> Iterator[list[TaskReport]]:
    while page := list(islice(tasks, PAGE)):
        yield page


def _head(result: Summary) -> list[str]:
    dot = glyphs().dot
    states = [
        colour(f"{count:,} {state_name(state)}", state)
        for state, count in sorted(result.states.items(), key=lambda part: _rank(part[0]))
    ]
    costs = [
        f"runtime {duration(round(result.runtime_seconds * 1000))}",
        f"CPU {duration(round(result.cpu_seconds * 1000))}",
        f"peak memory {size_text(result.peak_bytes)}" if result.peak_bytes else "",
        pluralize(result.attempts, "attempt"),
    ]
    about = " (an estimate)" if result.estimated else ""
    spent = [
        f"{result.tokens:,} tokens" if result.tokens is not None else "",
        "" if result.cost is None else f"cost {money_text(round(result.cost * 1e6))}{about}",
    ]
    return [
        f"batch {one_line(result.batch)} ({result.id}): {pluralize(result.total, 'task')}",
        "  " + (dot.join(states) or "no tasks"),
        *([f"  {result.unchanged:,} changed nothing"] if result.unchanged else []),
        "  " + dot.join(cost for cost in costs if cost),
        *(["  " + dot.join(part for part in spent if part)] if any(spent) else []),
        *_parts(result),
    ]


def _parts(result: Summary) -> list[str]:
    """Categories and chunks, where there are any."""
    dot = glyphs().dot
    kinds = [f"{count:,} {one_line(name)}" for name, count in result.categories.items()]
    chunks = [
        f"{one_line(c.label)}: {'waiting for a decision' if c.awaits_decision else c.state}"
        for c in result.chunks
    ]
    more = f" and {len(chunks) - MAX_CHUNKS} more" if len(chunks) > MAX_CHUNKS else ""
    return [
        *(["  categories: " + dot.join(kinds)] if kinds else []),
        *(["  " + dot.join(chunks[:MAX_CHUNKS]) + more] if chunks else []),
        *(
            [f"  {result.skipped:,} skipped by the last run (already done)"]
            if result.skipped
            else []
        ),
    ]


def _print_pages(pages: Iterable[list[TaskReport]]) -> None:
    """Without the costs on a narrow terminal: why a task failed matters more."""
    is_narrow = sys.stdout.isatty() and columns_here() < WIDE
    fit = (lambda row: (*row[:2], row[-1])) if is_narrow else (lambda row: row)
    long_table(
        fit(HEAD),
        (([fit(_row(task)) for task in page], [task.state for task in page]) for page in pages),
    )


def _order(task: TaskReport) -> tuple[int, float, str]:
    """Unsuccessful tasks first, then the longest ones."""
    return _rank(task.state), -task.seconds, task.id


def _rank(state: str) -> int:
    return FIRST.index(state) if state in FIRST else len(FIRST)


def _row(task: TaskReport) -> tuple[str, ...]:
    where = f"{task.commit[:12]} on {task.target}" if task.commit else ""
    note = task.reason or where or ("changed nothing" if task.unchanged else "")
    title = f"{task.title} ({note})" if note else task.title
    return (
        task.id,
        state_name(task.state),
        str(task.attempts),
        duration(round(task.seconds * 1000)),
        f"{task.cpu_seconds:.1f} s",
        size_text(task.peak_bytes) if task.peak_bytes else "",
        title,
    )
