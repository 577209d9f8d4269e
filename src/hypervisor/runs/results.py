"""The results of tasks, their reports and their stored output."""

from collections.abc import Iterator, Mapping

from hypervisor.core import validate
from hypervisor.core.errors import NotFound
from hypervisor.core.records import NamedTuple
from hypervisor.queue import lifecycle
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Json
from hypervisor.runs import sql
from hypervisor.runs.spec import TaskReport

PAGE = 500  # larger pages are no faster: the garbage collector has more to look through
BAD = (lifecycle.FAILED, lifecycle.BLOCKED, lifecycle.REVIEW, lifecycle.CANCELLED)

FOR_PEOPLE = (lifecycle.INBOX, lifecycle.REVIEW)  # nothing happens until a person decides


def all_done(states: Mapping[str, int]) -> bool:
    """Whether there are tasks and all of them are done."""
    return 0 < sum(states.values()) == states.get(lifecycle.DONE, 0)


def reports(
    hv: Context, batch: str, now: int | None = None, state: str | None = None
) -> Iterator[TaskReport]:
    """Every task of a batch, or those in a state, with the usage of its attempts, read page by
    page."""
    after = ""
    while page := hv.store.read(sql.report, batch, after, PAGE, hv.at(now), state):
        yield from page
        after = page[-1].id


class TaskResult(NamedTuple):
    """The result of one task."""

    task: str
    title: str
    state: str
    exit_code: int | None
    reason: str | None
    result: Json
    commit: str = ""  # that its work was merged as …
    target: str = ""  # … and where


def results(hv: Context, batch: str) -> Iterator[TaskResult]:
    """Get the result of every task of a batch."""
    batch_id = hv.store.read(queries.batch, validate.text("the batch", batch)).id
    for report in reports(hv, batch_id):
        reason = None if report.state == "done" else report.reason
        facts = (report.id, report.title, report.state, report.exit_code, reason, report.result)
        yield TaskResult(*facts, report.commit, report.target)


def output(
    hv: Context, task: str, attempt: int | None = None, start: int = 0, most: int = 1 << 20
) -> bytes:
    """Read the output of a task's last attempt, or of an earlier one."""
    task_id = hv.resolve(task)
    number = attempt if attempt is not None else latest_output(hv, task_id)
    if hv.outputs.size(task_id, number) is None:
        raise NotFound(hv.outputs.where(task_id, number))
    return hv.outputs.read(task_id, number, start, most)


def incomplete_outputs(hv: Context, attempts: Mapping[str, int]) -> list[str]:
    """Which of these tasks, given with their last attempts, have output that is not all kept here:
    it was too long, has been removed, or is on another host."""
    printed = hv.store.read(sql.output_sizes, sorted(attempts))
    return [
        task
        for task, size in printed.items()
        if (hv.outputs.size(task, attempts[task]) or 0) < size
        or not hv.outputs.is_whole(task, attempts[task])
    ]


def latest_output(hv: Context, task: str) -> int:
    """The last attempt that has an output; claims that were never started have none."""
    last = hv.store.read(queries.task, task).attempts
    attempts = (n for n in range(last, 0, -1) if hv.outputs.size(task, n) is not None)
    return next(attempts, last)
