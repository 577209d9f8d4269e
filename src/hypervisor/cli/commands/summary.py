"""hv summary"""

import argparse
import sys

from hypervisor.agents.budget import money
from hypervisor.batches.pipeline_status import Overview, pattern
from hypervisor.cli.output import (
    colour,
    columns_here,
    duration,
    glyphs,
    one_line,
    plain,
    print_lines,
    respond,
    table,
)
from hypervisor.cli.render import WIDE
from hypervisor.cli.stages import stage_lines
from hypervisor.core.text import counted
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
    answer = found if whole is None else {**plain(found), **plain(whole)}
    return respond(args, answer, lambda: _print(found, whole, args.all))


def _print(found: Summary, whole: Overview | None, everything: bool) -> None:
    print("\n".join(_head(found)))
    if whole and whole.unsuccessful:
        said = f"did not succeed: {one_line(', '.join(whole.unsuccessful))}"
        print("  " + colour(said, "failed"))
    print_lines(stage_lines(whole, columns_here()) if whole else ())
    tasks = sorted(found.tasks, key=_order)
    shown = tasks if everything or not sys.stdout.isatty() else tasks[:MOST_ROWS]
    if shown:
        print()
        _print_tasks(shown)
    if len(shown) < len(tasks):
        print(f"and {counted(len(tasks) - len(shown), 'more task')}: --all shows them")


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
    about = " (an estimate)" if found.estimated else ""
    spent = [
        f"{found.tokens:,} tokens" if found.tokens is not None else "",
        "" if found.cost is None else f"cost {money(round(found.cost * 1e6))}{about}",
    ]
    return [
        f"batch {one_line(found.batch)} ({found.id}): {counted(found.total, 'task')}",
        "  " + (dot.join(states) or "nothing in it"),
        "  " + dot.join(cost for cost in costs if cost),
        *(["  " + dot.join(each for each in spent if each)] if any(spent) else []),
        *_parts(found),
    ]


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
