"""Everything that waits for a person: chunks, tasks whose work cannot be merged, blocked tasks."""

from __future__ import annotations

from hypervisor.batches.review import awaiting
from hypervisor.core.errors import HypervisorError
from hypervisor.core.records import NamedTuple
from hypervisor.git import review as git_review
from hypervisor.git.queue_status import failed_output
from hypervisor.git.saved_work import ChangedFile, diff
from hypervisor.queue.context import Context
from hypervisor.queue.queries import batch_names, list_tasks, show
from hypervisor.queue.task import Task
from hypervisor.web.dashboard.diffs import DiffLine, lines_of, shown_at_once
from hypervisor.web.dashboard.page import Page, Request, Values, nothing

MAX_TASKS = 50
CONFLICT = "conflict"  # how the reason of one begins


class TaskFile(NamedTuple):
    """A file that a task changed. Without `lines`, they are sent when asked for."""

    file: ChangedFile
    lines: tuple[DiffLine, ...]
    left_out: int


def waiting(hv: Context, request: Request) -> Values:
    review = _tasks(hv, "review", request.query.get("review", ""))
    blocked = _tasks(hv, "blocked", request.query.get("blocked", ""))
    names = batch_names(hv, {task.batch for task in (*review, *blocked)})
    return {
        "checkpoints": awaiting(hv),
        "review": [(task, git_review.review_digest(task), _conflicts(task)) for task in review],
        "blocked": blocked,
        "names": names,
        "most": MAX_TASKS,
    }


def _tasks(hv: Context, state: str, before: str) -> tuple[Task, ...]:
    return list_tasks(hv, (state,), limit=MAX_TASKS, before=before or None)


def _conflicts(task: Task) -> bool:
    return (task.reason or "").startswith(CONFLICT)


# One task


def task_values(hv: Context, request: Request) -> Values:
    task = _task(hv, request)
    return {
        "task": task,
        "digest": git_review.review_digest(task),
        "conflicts": _conflicts(task),
        "names": batch_names(hv, [task.batch]),
    }


def changes(hv: Context, request: Request) -> Values:
    """What it changed: the counts of all files, and the lines of the short ones."""
    task = _task(hv, request)
    values = {"output": failed_output(hv, task), "files": [], "problem": ""}
    try:
        files = diff(hv, task.id, paths=()).files
    except HypervisorError as error:
        return {**values, "problem": str(error)}
    at_once = shown_at_once((file.path, file.added, file.removed) for file in files)
    return {
        **values,
        "files": [
            TaskFile(file, *_lines(hv, task, file.path)) if is_shown else TaskFile(file, (), 0)
            for file, is_shown in zip(files, at_once, strict=True)
        ],
    }


def file(hv: Context, request: Request) -> Values:
    """The lines of one file that it changed."""
    lines, left_out = _lines(hv, _task(hv, request), request.query.get("path", ""))
    return {"lines": lines, "left_out": left_out}


def _task(hv: Context, request: Request) -> Task:
    return show(hv, request.path["task"]).detail.task


def _lines(hv: Context, task: Task, path: str) -> tuple[tuple[DiffLine, ...], int]:
    return lines_of(diff(hv, task.id, paths=(path,)).text)


PAGES = (
    Page("/review", "reviews", parts={"waiting": waiting}),
    Page(
        "/review/tasks/{task}",
        "review_task",
        task_values,
        parts={"head": nothing, "changes": changes, "file": file},
    ),
)
