"""Following a run on the command line: its progress, then its result."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from hypervisor.batches import submit
from hypervisor.batches.pipeline import PipelineRun
from hypervisor.batches.pipeline_names import batches_from
from hypervisor.batches.submit import Submitted
from hypervisor.batches.summary import whole_summary
from hypervisor.cli import result
from hypervisor.cli.output import (
    Line,
    columns_here,
    drop_output,
    one_line,
    print_json_object,
    render,
    say,
    wants_colour,
    warn,
)
from hypervisor.cli.run.printing import OutputPrinter, Printing, warn_of_incomplete
from hypervisor.cli.views import View, view_for
from hypervisor.core.errors import EXIT_CHECKPOINT, EXIT_OK, EXIT_UNSUCCESSFUL
from hypervisor.monitoring.monitor import (
    Interrupts,
    Monitor,
    Target,
    ended_since,
    run_counts,
    stuck_tasks,
)
from hypervisor.monitoring.snapshot import open_tasks
from hypervisor.monitoring.status import combine, quick_status
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.runs import results
from hypervisor.runs.rerun import other_work_since

if TYPE_CHECKING:
    from hypervisor.batches.pipeline_status import Overview
    from hypervisor.batches.write_back import Unwritten
    from hypervisor.monitoring.failures import FailureGroup
    from hypervisor.queue.task import Task

INTERRUPTED = 130
LAST_REPORT = 15.0  # seconds
BAD = ("failed", "blocked", "review")


def follow(
    hv: Context,
    run: PipelineRun,
    as_json: bool,
    quiet: bool,
    left_out: int = 0,
    *,
    printing: Printing | None = None,
) -> int:
    """Show progress until the run has ended; returns the exit code."""
    with Interrupts() as interrupts:
        monitor = _follow_to_end(hv, run, interrupts, quiet or as_json, printing)
        for batch in run.batches:
            hv.launcher.forget_environment(batch)
        unwritten_files = _unwritten_files(hv, run)
        if as_json:
            counts = {"left_out": left_out, "unwritten": sum(map(len, unwritten_files.values()))}
            _print_answer({**_as_json(hv, run), **counts})
        else:
            _report(hv, run, monitor, quiet, printed=printing is not None)
            for name, files in unwritten_files.items():
                _say(result.unwritten(files, name))
    if interrupts.count:
        return INTERRUPTED
    if monitor is not None and monitor.last.status.checkpoint is not None:
        return EXIT_CHECKPOINT
    failed = any(unwritten_files.values()) or submit.unsuccessful(hv, *run.parts) > 0
    failed |= _warn_if_replaced(hv, run)
    failed |= printing is not None and warn_of_incomplete(hv, run.parts[-1], printing)
    return EXIT_UNSUCCESSFUL if failed else EXIT_OK


def _warn_if_replaced(hv: Context, run: PipelineRun) -> bool:
    """Whether tasks of this run were done by another command at the same time."""
    for part in run.parts if run.to_do else ():
        if work := other_work_since(hv, part.batch):
            name = one_line(part.batch.name)
            warn(
                f"hv: batch {name} was also run with another {work} at the same time, which may "
                f"have done some of its tasks. To check: hv summary {shlex.quote(name)}; to run "
                "everything with this one: --again"
            )
            return True
    return False


def _follow_to_end(
    hv: Context,
    run: PipelineRun,
    interrupts: Interrupts,
    quiet: bool,
    printing: Printing | None,
) -> Monitor | None:
    """None if there was nothing to do."""
    may_be_live = printing is None or printing.allows_live_view
    with view_for(quiet, may_be_live=may_be_live) as view:
        if not run.to_do:
            return None
        printer = OutputPrinter(hv, run.parts[-1], printing, view) if printing else None
        monitor = _monitor(hv, run, view, printer)
        for snapshot in monitor.follow(interrupts):
            view.show(snapshot)
        if printer:
            printer.print_rest()
        _wait_for_agents(hv, run, interrupts)
        return monitor


def watch(hv: Context, batch: str | None, view: View) -> None:
    """Show a batch and its later stages until they have ended, or everything until Ctrl-C."""
    batches = None if batch is None else batches_from(hv, hv.store.read(queries.batch, batch).id)
    target = _target(hv, batches, hv.now())
    on_failure = view.failed if view.shows_details else None
    for snapshot in Monitor(hv, target, on_failure, eager=view.is_live).watch():
        view.show(snapshot)


def has_ended(hv: Context, batch: str) -> bool:
    """Whether a batch and its later stages have stopped: nothing will run by itself."""
    from hypervisor.batches.reduce import has_pending_reduce

    batches = batches_from(hv, hv.store.read(queries.batch, batch).id)
    pending = has_pending_reduce(hv, batches[0])  # first: a release between the looks is seen
    status = combine([quick_status(hv, part) for part in batches])
    return not pending and open_tasks(status) <= stuck_tasks(hv, batches, status)


def _target(hv: Context, batches: Sequence[str] | None, since: int) -> Target:
    if not batches or len(batches) == 1:
        return Target(tuple(batches) if batches else None, since)
    from hypervisor.batches.reduce import has_pending_reduce, release_reduce

    return Target(
        tuple(batches),
        since,
        is_reduce_released=lambda: not has_pending_reduce(hv, batches[0]),
        release_reduce=lambda: release_reduce(hv, batches[0]),
    )


def _monitor(
    hv: Context, run: PipelineRun, view: View, printer: OutputPrinter | None = None
) -> Monitor:
    target = _target(hv, run.batches, run.first.since)
    after_look = printer.print_finished if printer else lambda: None
    if not view.shows_details:
        return Monitor(hv, target, eager=printer is not None, after_look=after_look)
    target = target._replace(counts=run_counts(hv, run.parts))
    eager = view.is_live or printer is not None
    return Monitor(hv, target, view.failed, eager=eager, after_look=after_look)


def _wait_for_agents(hv: Context, run: PipelineRun, interrupts: Interrupts) -> None:
    """Wait for the last message of each agent: it has the cost, and follows the task's end."""
    batches = _agent_batches(run)
    if not batches:
        return
    from hypervisor.agents.running_status import live_sessions

    deadline = time.monotonic() + LAST_REPORT
    while not interrupts.count and time.monotonic() < deadline:
        if not any(live_sessions(hv, batch) for batch in batches):
            return
        time.sleep(0.25)


def _unwritten_files(hv: Context, run: PipelineRun) -> dict[str, list[Unwritten]]:
    """The task files that could not be updated, by the name of their batch."""
    writing = [part for part in run.parts if _spec(part).get("write_back", "none") != "none"]
    if not writing:
        return {}
    from hypervisor.batches.write_back import unwritten

    return {part.batch.name: unwritten(hv, part.batch.id, part.since) for part in writing}


def _groups(hv: Context, bad: Sequence[Task], run: PipelineRun) -> Sequence[FailureGroup]:
    if not bad:
        return ()
    from hypervisor.monitoring.failures import group_failures

    return group_failures(hv, bad, _agent_batches(run))


def _agent_batches(run: PipelineRun) -> list[str]:
    return [part.batch.id for part in run.parts if _spec(part).get("agent")]


def _spec(part: Submitted) -> dict[str, Any]:
    spec = part.batch.spec
    return spec if isinstance(spec, dict) else {}


def _stays_in_clones(part: Submitted) -> bool:
    """Whether finished work waits in clones, because nothing merges it."""
    return _spec(part).get("workspace") == "clone" and not _spec(part).get("git_merge")


def _as_json(hv: Context, run: PipelineRun) -> dict[str, Any]:
    from hypervisor.cli.json_form import plain

    first = run.first
    totals = whole_summary(hv, first.batch.id, tasks=False)
    tasks = chain.from_iterable(results.reports(hv, batch) for batch in run.batches)
    answer = {**plain(totals), "tasks": tasks, "skipped": first.already_done}
    if overview := _overview(hv, run):
        answer |= plain(overview._asdict())
    return answer


def _print_answer(answer: dict[str, Any]) -> None:
    try:
        print_json_object(answer)
    except BrokenPipeError:  # the reader has seen enough; the exit code still tells the outcome
        drop_output()


def _overview(hv: Context, run: PipelineRun) -> Overview | None:
    if run.pipeline is None:
        return None
    from hypervisor.batches.pipeline_status import pattern

    return pattern(hv, run.first.batch.id)


def _stage_lines(overview: Overview | None) -> tuple[list[Line], list[Line]]:
    """The outcome of each stage of a pipeline, and the result of its reduce."""
    if overview is None:
        return [], []
    from hypervisor.cli.stages import answer_of, stage_lines

    return stage_lines(overview, columns_here(), answer=False), answer_of(overview)


def _report(
    hv: Context, run: PipelineRun, monitor: Monitor | None, quiet: bool, *, printed: bool
) -> None:
    stages, answer = _stage_lines(_overview(hv, run))
    if monitor is None:
        _say([*stages, *answer])
        return
    bad = ended_since(hv, run.batches, run.first.since, BAD)
    ended = result.Result(
        submitted=run.first,
        ended=submit.outcome(hv, *run.parts),
        last=monitor.last,
        summary=whole_summary(hv, run.first.batch.id, tasks=False),
        bad=bad,
        groups=_groups(hv, bad, run),
        took=hv.now() - run.first.since,
        above=frozenset() if quiet else monitor.reported,
        undecided=sum(len(submit.undecided(hv, part)) for part in run.parts),
        shows_tails=not printed,
        in_clones=any(map(_stays_in_clones, run.parts)),
    )
    gap: list[Line] = [[]] if bad and sys.stdout.isatty() else []
    _say([*gap, *result.lines(ended, stages), *answer])


def _say(lines: Sequence[Line]) -> None:
    say(*(render(line, wants_colour()) for line in lines))
