"""The outputs of a whole batch, each task with a heading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hypervisor.batches.pipeline_names import batches_from
from hypervisor.cli.output import one_line
from hypervisor.monitoring.monitor import Monitor, Target
from hypervisor.queue import lifecycle
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Task
from hypervisor.runs.finished import FINISHED, FinishedTasks
from hypervisor.runs.results import reports

FAILED = (lifecycle.FAILED, lifecycle.BLOCKED, lifecycle.REVIEW)


def tasks(hv: Context, batch: str, *, failed: bool, follow: bool) -> Iterator[Task]:
    """The tasks of a batch that have run, by id; with `follow` the finished ones, then the
    others as they finish, until the batch has ended."""
    end = queries.end_of_log(hv.store)  # first: what finishes after it is not missed
    states = FAILED if failed else FINISHED
    shown: set[tuple[str, int]] = set()
    for report in reports(hv, batch):
        wanted = report.state in states or not (failed or follow)
        if wanted and report.attempts:
            shown.add((report.id, report.attempts))
            yield hv.store.read(queries.task, report.id)
    if not follow:
        return
    finished = FinishedTasks(hv, batch, end)
    monitor = Monitor(hv, Target(batches_from(hv, batch), hv.now()), eager=True)
    for _ in monitor.watch():
        for task in finished.new():
            if task.state in states and (task.id, task.attempts) not in shown:
                yield task


def heading(task: Task) -> str:
    reason = f", {task.reason}" if task.reason and task.state != lifecycle.DONE else ""
    return one_line(f"==> {task.id}  {task.title} ({lifecycle.state_name(task.state)}{reason}) <==")


def whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same, ending with a newline, as a heading comes next."""
    last = b"\n"
    for piece in pieces:
        yield piece
        last = piece[-1:]
    if last != b"\n":
        yield b"\n"
