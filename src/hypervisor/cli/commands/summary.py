"""hv summary"""

import argparse
import sys

from hypervisor.batches.pipeline_status import Overview, pattern
from hypervisor.batches.summary import Summary, whole_summary
from hypervisor.cli.json_form import plain
from hypervisor.cli.latest import add_batch, named_or_latest
from hypervisor.cli.output import (
    colour,
    columns_here,
    duration,
    glyphs,
    one_line,
    print_lines,
    respond,
    table,
)
from hypervisor.cli.render import WIDE
from hypervisor.cli.stages import stage_lines
from hypervisor.core.text import money_text, pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.resources.limits import size_text
from hypervisor.runs.spec import TaskReport

EXAMPLE = """hv summary
  hv summary pages
  hv summary pages --json > pages.json"""
FIRST = ("failed", "blocked", "review", "cancelled", "in_progress", "merging", "active", "waiting")
MAX_ROWS = 40
MAX_CHUNKS = 12
HEAD: tuple[str, ...] = ("ID", "STATE", "TRIES", "TOOK", "CPU", "MEMORY", "TITLE")


def configure(parser: argparse.ArgumentParser) -> None:
    add_batch(parser)
    parser.add_argument(
        "--all", action="store_true", help="list all tasks (on a terminal, the default is 40)"
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    result = whole_summary(hv, named_or_latest(hv, args.batch))
    whole = pattern(hv, result.id)
    answer = result if whole is None else {**plain(result), **plain(whole)}
    return respond(args, answer, lambda: _print(result, whole, args.all))


def _print(result: Summary, whole: Overview | None, everything: bool) -> None:
    print("\n".join(_head(result)))
    if whole and whole.unsuccessful:
        failed = f"did not succeed: {one_line(', '.join(whole.unsuccessful))}"
        print("  " + colour(failed, "failed"))
    print_lines(stage_lines(whole, columns_here()) if whole else ())
    tasks = sorted(result.tasks, key=_order)
    shown = tasks if everything or not sys.stdout.isatty() else tasks[:MAX_ROWS]
    if shown:
        print()
        _print_tasks(shown)
    if len(shown) < len(tasks):
        print(f"and {pluralize(len(tasks) - len(shown), 'more task')}: --all shows them")


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


def _print_tasks(tasks: list[TaskReport]) -> None:
    """Without the costs on a narrow terminal: why a task failed matters more."""
    rows = [HEAD, *(_row(task) for task in tasks)]
    if sys.stdout.isatty() and columns_here() < WIDE:
        rows = [(*row[:2], row[-1]) for row in rows]
    table(rows[0], rows[1:], [task.state for task in tasks])


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
