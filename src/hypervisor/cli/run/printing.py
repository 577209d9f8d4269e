"""`hv run --print`: outputs are written to standard output, and all messages to standard error."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import TextIO

from hypervisor.batches.submit import Submitted
from hypervisor.cli.output import drop_output, one_line, warn
from hypervisor.cli.run.request import RunRequest
from hypervisor.cli.views import View
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Task
from hypervisor.runs.results import incomplete_outputs


class Printing(NamedTuple):
    """Where outputs are printed, how, and from which event on."""

    stdout: TextIO
    after: int
    ordered: bool = False
    tag: bool = False

    def from_now_on(self, hv: Context) -> Printing:
        """The same for tasks that finish from now on."""
        return self._replace(after=queries.end_of_log(hv.store))

    @property
    def allows_live_view(self) -> bool:
        """Not if stdout is a pipe: its reader may write to the same terminal."""
        mode = os.fstat(self.stdout.fileno()).st_mode
        return not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--print",
        dest="print_output",
        action=argparse.BooleanOptionalAction,
        help="print the output of each item when it has finished "
        "(default: for a single item, on a terminal)",
    )
    group.add_argument(
        "-k", "--ordered", action="store_true", help="print in the order of the items"
    )
    group.add_argument(
        "--tag", action="store_true", help="print the item before each line of output"
    )


def is_wanted(request: RunRequest, items: int) -> bool:
    """Whether outputs are printed; InvalidInput where they cannot be."""
    options = request.printing
    if options.print_output is False and (options.ordered or options.tag):
        raise InvalidInput("--ordered and --tag cannot be used with --no-print.")
    if options.print_output or options.ordered or options.tag:
        if request.json:
            raise InvalidInput("--print and --json cannot be used together.")
        if request.detach:
            raise InvalidInput(
                "--print and --detach cannot be used together; to print the output later: "
                "hv logs BATCH --follow"
            )
        return True
    if options.print_output is False or request.json or request.detach or request.quiet:
        return False
    return items == 1 and request.skill is None and sys.stdout.isatty()


@contextmanager
def printing_to_stdout(hv: Context, request: RunRequest) -> Iterator[Printing]:
    """Print the output of everything that finishes; inside the block, `sys.stdout` is standard
    error."""
    options, stdout = request.printing, sys.stdout
    after = queries.end_of_log(hv.store)
    with redirect_stdout(sys.stderr):
        yield Printing(stdout, after, options.ordered, options.tag)


def warn_of_incomplete(hv: Context, run: Submitted, printing: Printing) -> bool:
    """Warn about outputs of which only a part is kept on this host; returns whether there are
    any."""
    from hypervisor.runs.finished import FinishedTasks

    if isinstance(run.batch.spec, dict) and run.batch.spec.get("agent"):
        return False  # the last message of an agent is printed
    finished = {task.id: task for task in FinishedTasks(hv, run.batch.id, printing.after).new()}
    attempts = {task.id: task.attempts for task in finished.values()}
    incomplete = incomplete_outputs(hv, attempts)
    if incomplete:
        warn(
            f"hv: {pluralize(len(incomplete), 'output')} could not be printed in full (first: "
            f"{one_line(finished[incomplete[0]].title)}): only a part is kept on this host. To "
            "keep more, raise keep_each under [outputs] in config.toml (`hv config path`)."
        )
    return bool(incomplete)


class OutputPrinter:
    """Prints the outputs of one batch next to the view of its run."""

    def __init__(self, hv: Context, run: Submitted, printing: Printing, view: View) -> None:
        from hypervisor.runs.finished import FinishedTasks, ItemOrder, unfinished_ids

        self._hv, self._spec, self._printing, self._view = hv, run.batch.spec, printing, view
        self._finished = FinishedTasks(hv, run.batch.id, printing.after)
        ids = unfinished_ids(hv, run.batch.id, run.since) if printing.ordered else ()
        self._order = ItemOrder(ids) if printing.ordered else None

    def print_finished(self) -> None:
        for task in self._finished.new():
            for next in self._order.add(task) if self._order else (task,):
                self._view.write_above(partial(self._write, next))

    def print_rest(self) -> None:
        """Print the outputs that were held back for items that have not finished."""
        for task in self._order.rest() if self._order else ():
            self._view.write_above(partial(self._write, task))

    def _write(self, task: Task) -> None:
        from hypervisor.cli.outputs import output_of, tagged, write_output

        pieces = output_of(self._hv, task, self._spec)
        try:
            write_output(
                tagged(pieces, task.title) if self._printing.tag else pieces, self._printing.stdout
            )
        except BrokenPipeError:  # the reader has seen enough; the run continues
            drop_output(self._printing.stdout)
