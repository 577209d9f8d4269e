"""hv status"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from hypervisor.batches.pipeline_names import batches_from
from hypervisor.cli.latest import add_batch, named_or_latest
from hypervisor.cli.output import columns_here, fit, one_line, print_json, print_lines, table
from hypervisor.cli.render import (
    figures,
    hints,
    host_line,
    money_lines,
    progress,
    question_lines,
)
from hypervisor.core.errors import EXIT_OK, InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.monitoring.progress import count
from hypervisor.monitoring.snapshot import Snapshot, paused_batches
from hypervisor.monitoring.status import Status, combine, status
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.queries import batches, stats

if TYPE_CHECKING:
    from hypervisor.batches.pipeline_status import Overview

EXAMPLE = """hv status
  hv status --all
  hv status pages --watch"""
NEWEST = 10
PAUSE = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    add_batch(parser)
    parser.add_argument("--all", action="store_true", help="show all batches and tasks")
    parser.add_argument(
        "--watch", action="store_true", help="keep updating until the batch ends, or Ctrl-C"
    )


def prepare(args: argparse.Namespace) -> None:
    if args.all and args.batch is not None:
        raise InvalidInput("name a batch or use --all, not both.")


def run(hv: Context, args: argparse.Namespace) -> int:
    is_named = args.batch is not None
    if not (is_named or args.all) and batches(hv, 1):
        args.batch = named_or_latest(hv, None)
    if args.json:
        _print_json(hv, args)
        return EXIT_OK
    if args.watch:
        _watch(hv, args.batch)
    else:
        _print(hv, args.batch)
    if args.batch is not None and not is_named:
        _print_others(hv, args.batch)
    return EXIT_OK


def _watch(hv: Context, batch: str | None) -> None:
    from hypervisor.cli import follow
    from hypervisor.cli.views import view_for

    status(hv, batch)  # a missing batch is reported before the screen is taken
    try:
        with view_for(quiet=False, stays=True) as view:
            follow.watch(hv, batch, view)
    except KeyboardInterrupt:
        return
    _print(hv, batch)


def _print_json(hv: Context, args: argparse.Namespace) -> None:
    """One object, or with --watch one every second."""
    while True:
        current = _status(hv, args.batch)
        whole = _pattern(hv, current)
        print_json({**current._asdict(), **(whole._asdict() if whole else {})}, hv)
        sys.stdout.flush()
        if not args.watch or (args.batch is not None and _has_ended(hv, args.batch)):
            return
        time.sleep(PAUSE)


def _has_ended(hv: Context, batch: str) -> bool:
    from hypervisor.cli.follow import has_ended

    return has_ended(hv, batch)


def _pattern(hv: Context, current: Status) -> Overview | None:
    if current.batch is None:
        return None
    from hypervisor.batches.pipeline_status import pattern

    return pattern(hv, current.batch.id)


def _status(hv: Context, batch: str | None) -> Status:
    """The status of a batch with its later stages, or of everything."""
    if batch is None:
        return status(hv)
    return combine([status(hv, part) for part in batches_from(hv, batch_id(hv, batch) or "")])


def _print(hv: Context, batch: str | None) -> None:
    current = _status(hv, batch)
    whole = _pattern(hv, current)
    counts = count(current.stats.states, current.attempts)
    snapshot = Snapshot(current, counts, hv.now(), batches=paused_batches(hv, current))
    what = "everything" if current.batch is None else one_line(f"batch {current.batch.name}")
    print(f"{what}: {pluralize(current.stats.total, 'task')}")
    columns = columns_here()
    lines = progress(snapshot, columns - 1) if sys.stdout.isatty() else [figures(snapshot)]
    lines += [*hints(snapshot), *money_lines(current), host_line(current)]
    lines += question_lines(current.questions)
    if whole:
        from hypervisor.cli.stages import stage_lines

        lines += stage_lines(whole, columns, answer=False)
    print_lines(fit(line, columns) for line in lines)
    if current.batch is None:
        _print_batches(hv)
    if any(attempt.started for attempt in current.attempts):
        from hypervisor.cli.commands.top import print_attempts

        print()
        print_attempts(hv, current.attempts, snapshot.now, with_batch=current.batch is None)


def _print_others(hv: Context, batch: str) -> None:
    """Mention open tasks outside the latest batch."""
    everything, shown = (count(_status(hv, which).stats.states, ()) for which in (None, batch))
    if others := everything.open - shown.open:
        print(f"\n{pluralize(others, 'open task')} elsewhere: hv status --all")


def _print_batches(hv: Context) -> None:
    """The newest batches that have open tasks."""
    rows = []
    for batch in batches(hv, NEWEST):
        counts = count(stats(hv, batch.id).states, ())
        if counts.open:
            rows.append((f"{counts.open:,}", f"{counts.done:,}", f"{counts.failed:,}", batch.name))
    if rows:
        print()
        table(("OPEN", "DONE", "FAILED", "BATCH"), rows)
