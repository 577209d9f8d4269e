"""hv summary"""

from __future__ import annotations

import argparse
import sys

from hypervisor.batches.pipeline_status import pattern
from hypervisor.cli.output import (
    colour,
    columns_here,
    duration,
    one_line,
    plain,
    print_json,
    table,
    wants_colour,
)
from hypervisor.cli.render import WIDE, glyphs, render
from hypervisor.cli.stages import stage_lines
from hypervisor.core.errors import EXIT_OK
from hypervisor.core.text import amount_text, counted
from hypervisor.queue.context import Context
from hypervisor.resources.limits import size_text
from hypervisor.runs.run import Summary, summary
from hypervisor.runs.spec import TaskReport

EXAMPLE = """hv summary pages
  hv summary pages --json > pages.json"""
FIRST = ("failed", "blocked", "review", "cancelled", "in_progress", "merging", "active", "waiting")
MOST_ROWS = 40
MOST_CHUNKS = 12
HEAD: tuple[str, ...] = ("ID", "STATE", "TRIES", "TOOK", "CPU", "MEMORY", "TITLE")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", metavar="BATCH", help="its name or id")
    parser.add_argument("--all", action="store_true", help="every task, also on a terminal")


def run(hv: Context, args: argparse.Namespace) -> int:
    found = summary(hv, args.batch)
    whole = pattern(hv, found.id)
    if args.json:
        print_json(found if whole is None else {**plain(found), **plain(whole)})
        return EXIT_OK
    for line in _head(found):
        print(line)
    if whole and whole.unsuccessful:
        said = f"did not succeed: {one_line(', '.join(whole.unsuccessful))}"
        print("  " + colour(said, "failed"))
    for part in stage_lines(whole, columns_here()) if whole else ():
        print(render(part, wants_colour()))
    tasks = sorted(found.tasks, key=_order)
    shown = tasks if args.all or not sys.stdout.isatty() else tasks[:MOST_ROWS]
    if shown:
        print()
        _print_tasks(shown)
    if len(shown) < len(tasks):
        print(f"and {counted(len(tasks) - len(shown), 'more task')}: --all shows them")
    return EXIT_OK


def _head(found: Summary) -> list[str]:
    dot = glyphs().dot
    states = [
        colour(f"{count:,} {state}", state)
        for state, count in sorted(found.states.items(), key=lambda each: _rank(each[0]))
    ]
    costs = [
        f"runtime {duration(round(found.runtime_seconds * 1000))}",
        f"CPU {duration(round(found.cpu_seconds * 1000))}",
        f"peak memory {size_text(found.peak_bytes)}" if found.peak_bytes else "",
        counted(found.attempts, "attempt"),
    ]
    spent = [
        f"{found.tokens:,} tokens" if found.tokens is not None else "",
        f"cost {cost_text(found)}" if found.cost is not None else "",
    ]
    return [
        f"batch {one_line(found.batch)} ({found.id}): {counted(found.total, 'task')}",
        "  " + (dot.join(states) or "nothing in it"),
        "  " + dot.join(cost for cost in costs if cost),
        *(["  " + dot.join(each for each in spent if each)] if any(spent) else []),
        *_parts(found),
    ]


def cost_text(found: Summary) -> str:
    about = " (an estimate)" if found.estimated else ""
    return amount_text(round((found.cost or 0) * 1e6)) + about


def _parts(found: Summary) -> list[str]:
    """Categories and chunks, where there are any."""
    dot = glyphs().dot
    kinds = [f"{count:,} {one_line(name)}" for name, count in found.categories.items()]
    chunks = [
        f"{one_line(each.label)}: {'waits for a decision' if each.awaits_decision else each.state}"
        for each in found.chunks
    ]
    more = f" and {len(chunks) - MOST_CHUNKS} more" if len(chunks) > MOST_CHUNKS else ""
    return [
        *(["  categories: " + dot.join(kinds)] if kinds else []),
        *(["  " + dot.join(chunks[:MOST_CHUNKS]) + more] if chunks else []),
        *([f"  {found.skipped:,} skipped by the last run (done before)"] if found.skipped else []),
    ]


def _print_tasks(tasks: list[TaskReport]) -> None:
    """On a narrow terminal why a task failed matters more than what it cost."""
    rows = [HEAD, *(_row(task) for task in tasks)]
    if sys.stdout.isatty() and columns_here() < WIDE:
        rows = [(*row[:2], row[-1]) for row in rows]
    table(rows[0], rows[1:], [task.state for task in tasks])


def _order(task: TaskReport) -> tuple[int, float, str]:
    """What went wrong first, then what took longest."""
    return _rank(task.state), -task.seconds, task.id


def _rank(state: str) -> int:
    return FIRST.index(state) if state in FIRST else len(FIRST)


def _row(task: TaskReport) -> tuple[str, ...]:
    title = f"{task.title} ({task.reason})" if task.reason else task.title
    return (
        task.id,
        task.state,
        str(task.attempts),
        duration(round(task.seconds * 1000)),
        f"{task.cpu_seconds:.1f} s",
        size_text(task.peak_bytes) if task.peak_bytes else "",
        title,
    )
