"""hv status"""

import argparse
import sys
import time

from hypervisor.batches.pipeline import batches_from
from hypervisor.batches.pipeline_status import pattern
from hypervisor.cli import follow
from hypervisor.cli.commands.top import print_attempts
from hypervisor.cli.output import columns_here, fit, one_line, plain, print_json, print_lines, table
from hypervisor.cli.render import figures, hints, host_line, money_lines, progress
from hypervisor.cli.stages import stage_lines
from hypervisor.cli.views import view_for
from hypervisor.core.errors import EXIT_OK
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.look import batches, stats
from hypervisor.runs.monitor import Snapshot
from hypervisor.runs.progress import count
from hypervisor.runs.status import Status, combine, status

EXAMPLE = """hv status
  hv status pages --watch"""
NEWEST = 10
PAUSE = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", nargs="?", metavar="BATCH", help="its name or id (default: all)")
    parser.add_argument("--watch", action="store_true", help="go on until it has ended, or Ctrl-C")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.json:
        _print_json(hv, args)
    elif not args.watch:
        _print(hv, args.batch)
    else:
        _watch(hv, args.batch)
    return EXIT_OK


def _watch(hv: Context, batch: str | None) -> None:
    status(hv, batch)  # a batch that is not there is said before the screen is taken
    try:
        with view_for(quiet=False, stays=True) as view:
            follow.watch(hv, batch, view)
    except KeyboardInterrupt:
        return
    _print(hv, batch)


def _print_json(hv: Context, args: argparse.Namespace) -> None:
    """Once, or every second a line."""
    while True:
        current = _status(hv, args.batch)
        whole = pattern(hv, current.batch.id) if current.batch else None
        print_json(current if whole is None else {**plain(current), **plain(whole)})
        sys.stdout.flush()
        if not args.watch or (args.batch is not None and follow.has_ended(hv, args.batch)):
            return
        time.sleep(PAUSE)


def _status(hv: Context, batch: str | None) -> Status:
    """Of a batch that others follow on, how all of them stand."""
    if batch is None:
        return status(hv)
    return combine([status(hv, part) for part in batches_from(hv, batch_id(hv, batch) or "")])


def _print(hv: Context, batch: str | None) -> None:
    current = _status(hv, batch)
    whole = pattern(hv, current.batch.id) if current.batch else None
    names = {batch.id: batch.name for batch in batches(hv)} if current.pauses else {}
    counts = count(current.stats.states, current.attempts)
    snapshot = Snapshot(current, counts, hv.now(), batches=names)
    what = "everything" if current.batch is None else one_line(f"batch {current.batch.name}")
    print(f"{what}: {pluralize(current.stats.total, 'task')}")
    columns = columns_here()
    lines = progress(snapshot, columns - 1) if sys.stdout.isatty() else [figures(snapshot)]
    lines += [*hints(snapshot), *money_lines(current), host_line(current)]
    lines += stage_lines(whole, columns, answer=False) if whole else []
    print_lines(fit(line, columns) for line in lines)
    if current.batch is None:
        _print_batches(hv)
    if any(attempt.started for attempt in current.attempts):
        print()
        print_attempts(hv, current.attempts, snapshot.now, with_batch=current.batch is None)


def _print_batches(hv: Context) -> None:
    """Those of the newest ones that have something to do."""
    rows = []
    for batch in batches(hv, NEWEST):
        counts = count(stats(hv, batch.id).states, ())
        if counts.open:
            rows.append((f"{counts.open:,}", f"{counts.done:,}", f"{counts.failed:,}", batch.name))
    if rows:
        print()
        table(("OPEN", "DONE", "FAILED", "BATCH"), rows)
