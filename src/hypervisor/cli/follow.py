"""Following a run on the command line: progress while it lasts, the result when it is over."""

import sys
import time
from collections.abc import Sequence
from typing import Any

from hypervisor.agents.running_status import live_sessions
from hypervisor.batches.pipeline import PipelineRun, batches_from
from hypervisor.batches.pipeline_status import pattern
from hypervisor.batches.reduce import has_pending_reduce, release_reduce
from hypervisor.cli import result
from hypervisor.cli.output import (
    Line,
    columns_here,
    plain,
    print_json_object,
    render,
    say,
    wants_colour,
)
from hypervisor.cli.stages import answer_of, stage_lines
from hypervisor.cli.views import View, view_for
from hypervisor.core.errors import EXIT_CHECKPOINT, EXIT_OK, EXIT_UNSUCCESSFUL
from hypervisor.inputs.task_files.write_back import unwritten
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.runs import run as runs
from hypervisor.runs.monitor import (
    Interrupts,
    Monitor,
    Target,
    ended_since,
    open_tasks,
    run_counts,
    stuck_tasks,
)
from hypervisor.runs.run import Summary
from hypervisor.runs.status import combine, standing

INTERRUPTED = 130
LAST_REPORT = 15.0  # seconds
BAD = ("failed", "blocked", "review")


def follow(hv: Context, run: PipelineRun, as_json: bool, quiet: bool, left_out: int = 0) -> int:
    """Show progress until nothing of it has more to do. Returns the exit code."""
    monitor: Monitor | None = None
    with Interrupts() as interrupts:
        with view_for(quiet or as_json) as view:
            if run.to_do:
                monitor = _monitor(hv, run, view)
                for snapshot in monitor.follow(interrupts):
                    view.show(snapshot)
                _wait_for_agents(hv, run, interrupts)
        for batch in run.batches:
            hv.launcher.forget_environment(batch)
        unwritten_files = {
            part.batch.name: unwritten(hv, part.batch.id, part.since) for part in run.parts
        }
        if as_json:
            counts = {"left_out": left_out, "unwritten": sum(map(len, unwritten_files.values()))}
            print_json_object({**_as_json(hv, run), **counts})
        else:
            _report(hv, run, monitor, quiet)
            for name, files in unwritten_files.items():
                _say(result.unwritten(files, name))
    if interrupts.count:
        return INTERRUPTED
    if monitor is not None and monitor.last.status.checkpoint is not None:
        return EXIT_CHECKPOINT
    failed = any(unwritten_files.values()) or runs.unsuccessful(hv, *run.parts)
    return EXIT_UNSUCCESSFUL if failed else EXIT_OK


def watch(hv: Context, batch: str | None, view: View) -> None:
    """Show a batch, with what follows on it, until it has ended, or everything until Ctrl-C."""
    batches = None if batch is None else batches_from(hv, hv.store.read(queries.batch, batch).id)
    target = _target(hv, batches, hv.now())
    on_failure = view.failed if view.shows_details else None
    for snapshot in Monitor(hv, target, on_failure, eager=view.is_live).watch():
        view.show(snapshot)


def has_ended(hv: Context, batch: str) -> bool:
    """Whether nothing of a batch, and of what follows on it, will run any more by itself."""
    batches = batches_from(hv, hv.store.read(queries.batch, batch).id)
    pending = has_pending_reduce(hv, batches[0])  # first: a release between the looks is seen
    status = combine([standing(hv, part) for part in batches])
    return not pending and open_tasks(status) <= stuck_tasks(hv, batches, status)


def _target(hv: Context, batches: Sequence[str] | None, since: int) -> Target:
    if not batches or len(batches) == 1:
        return Target(tuple(batches) if batches else None, since)
    return Target(
        tuple(batches),
        since,
        is_reduce_released=lambda: not has_pending_reduce(hv, batches[0]),
        release_reduce=lambda: release_reduce(hv, batches[0]),
    )


def _monitor(hv: Context, run: PipelineRun, view: View) -> Monitor:
    target = _target(hv, run.batches, run.first.since)
    if not view.shows_details:
        return Monitor(hv, target)
    target = target._replace(counts=run_counts(hv, run.parts))
    return Monitor(hv, target, view.failed, eager=view.is_live)


def _wait_for_agents(hv: Context, run: PipelineRun, interrupts: Interrupts) -> None:
    """An agent says what it cost in its last message, which comes after its task has ended."""
    specs = [(part.batch.id, part.batch.spec) for part in run.parts]
    batches = [id for id, spec in specs if isinstance(spec, dict) and spec.get("agent")]
    deadline = time.monotonic() + LAST_REPORT
    while batches and not interrupts.count and time.monotonic() < deadline:
        if not any(live_sessions(hv, batch) for batch in batches):
            return
        time.sleep(0.25)


def _as_json(hv: Context, run: PipelineRun) -> dict[str, Any]:
    first = run.first
    summary = runs.summary(hv, first.batch.id, tasks=False)
    tasks = runs.reports(hv, first.batch.id)
    answer = {**plain(summary), "tasks": tasks, "skipped": first.already_done}
    if overview := pattern(hv, first.batch.id):
        answer |= plain(overview._asdict())
    return answer


def _report(hv: Context, run: PipelineRun, monitor: Monitor | None, quiet: bool) -> None:
    overview = pattern(hv, run.first.batch.id)
    stages = stage_lines(overview, columns_here(), answer=False) if overview else []
    answer = answer_of(overview) if overview else []
    if monitor is None:
        _say([*stages, *answer])
        return
    bad = ended_since(hv, run.batches, run.first.since, BAD)
    summaries = [runs.summary(hv, batch, tasks=False) for batch in run.batches]
    ended = result.Result(
        submitted=run.first,
        ended=runs.outcome(hv, *run.parts),
        last=monitor.last,
        summary=_total(summaries),
        bad=bad,
        took=hv.now() - run.first.since,
        above=frozenset() if quiet else monitor.reported,
    )
    gap: list[Line] = [[]] if bad and sys.stdout.isatty() else []
    _say([*gap, *result.lines(ended, stages), *answer])


def _say(lines: Sequence[Line]) -> None:
    say(*(render(line, wants_colour()) for line in lines))


def _total(summaries: Sequence[Summary]) -> Summary:
    """What all parts took together."""
    tokens = [part.tokens for part in summaries if part.tokens is not None]
    costs = [part.cost for part in summaries if part.cost is not None]
    return summaries[0]._replace(
        cpu_seconds=sum(part.cpu_seconds for part in summaries),
        peak_bytes=max(part.peak_bytes for part in summaries),
        attempts=sum(part.attempts for part in summaries),
        tokens=sum(tokens) if tokens else None,
        cost=sum(costs) if costs else None,
        estimated=any(part.estimated for part in summaries),
    )
