"""Writing back into task files: how far the task is, and what was done for it.

The store is the truth, the file shows it: whoever finds the file behind brings
it up to date, so it does not matter who was killed in between.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hypervisor.batches.sql import report as report_sql
from hypervisor.core.errors import HypervisorError, InvalidInput, NotFound, StoreError
from hypervisor.inputs.items import item_of
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import ACTIVE, IN_PROGRESS, WAITING
from hypervisor.queue.receipt import Receipt
from hypervisor.queue.result import NOTHING, Edit, edit_in, text_of
from hypervisor.queue.sql import event_log, queries
from hypervisor.queue.sql import receipts as receipts_sql
from hypervisor.queue.task import Task
from hypervisor.runs.spec import RunSpec, spec_from

if TYPE_CHECKING:
    from hypervisor.inputs.task_files.files import TaskFiles

UNWRITTEN = "its file could not be written: "


class Due(NamedTuple):
    """What a task's file shall show: an edit, or, without one, only its receipts."""

    task: Task
    path: str
    receipts: Sequence[Receipt]
    edit: Callable[[bytes], bytes] | None = None


def write_back(hv: Context, task: str, spec: RunSpec | None = None, edits: bool = False) -> bool:
    """Bring the task's file up to date. False if it has none, or could not be written.

    `edits` makes the edit that its result asks for: when the attempt ends, and only then, since
    what the owner takes back later stays taken back."""
    try:
        return _write_back(hv, task, spec, edits)
    except StoreError:  # the file is behind until somebody comes by again
        return False


def write_back_all(hv: Context, tasks: Sequence[str], spec: RunSpec) -> None:
    """Bring the files of a run's tasks up to date whose attempts have just ended, all at once."""
    files = hv.task_files if hv.is_equipped else None
    if files is None or spec.write_back == "none":
        return
    with suppress(StoreError):  # the files are behind until somebody comes by again
        receipts = hv.store.read(receipts_sql.of_tasks, tasks)
        due = [
            _due(hv, spec, each, receipts[each.id], True)
            for each in hv.store.read(queries.tasks, tasks)
        ]
        changes: list[Due] = []
        for each in due:
            if each is None:
                continue
            if each.edit is not None:
                changes.append(each)
                continue
            try:
                files.append_receipts(each.path, each.receipts)
            except (HypervisorError, OSError) as error:
                _tell(hv, each.task, error)
        outcomes = files.change_all([(each.path, each.edit) for each in changes if each.edit])
        for each, outcome in zip(changes, outcomes, strict=True):
            if isinstance(outcome, Exception):
                _tell(hv, each.task, outcome)


class Unwritten(NamedTuple):
    """A task file that lacks what it should show."""

    task: str
    path: str
    reason: str


def unwritten(hv: Context, batch: str, since: int = 0) -> list[Unwritten]:
    """The files of a batch that could not be written since then, and have not been since."""
    files = hv.task_files if hv.is_equipped else None
    spec = _spec_of(hv, batch)
    if files is None or spec is None or spec.write_back == "none":
        return []
    noted = hv.store.read(report_sql.noted, "file", batch, since)
    found: list[Unwritten] = []
    for task in hv.store.read(queries.tasks, list(noted)):
        due = _due(hv, spec, task, hv.store.read(receipts_sql.of_task, task.id), edits=True)
        if due is not None and _is_behind(files, due):
            reason = str((noted[task.id] or {}).get("said", "")).removeprefix(UNWRITTEN)
            found.append(Unwritten(task.id, due.path, reason))
    return found


def _is_behind(files: TaskFiles, due: Due) -> bool:
    from hypervisor.inputs.task_files.receipts_section import with_receipts

    try:
        data = files.read(due.path)
        wanted = due.edit(data) if due.edit else with_receipts(data, due.receipts)
    except (HypervisorError, OSError):
        return True
    return wanted != data


def _write_back(hv: Context, task: str, spec: RunSpec | None, edits: bool) -> bool:
    files = hv.task_files if hv.is_equipped else None
    found = hv.store.read(queries.task, task)
    spec = spec or _spec(hv, found)
    if files is None or spec is None or spec.write_back == "none":
        return False
    due = _due(hv, spec, found, hv.store.read(receipts_sql.of_task, task), edits)
    if due is None:
        return False
    try:
        if due.edit is None:
            return files.append_receipts(due.path, due.receipts)
        return files.change(due.path, due.edit)
    except StoreError:
        raise
    except (HypervisorError, OSError) as error:
        _tell(hv, found, error)
        return False


def _due(
    hv: Context, spec: RunSpec, task: Task, receipts: Sequence[Receipt], edits: bool
) -> Due | None:
    path = _path(hv, spec, task)
    if path is None:
        return None
    wanted = edit_in(task.result) if edits and task.state == "done" else NOTHING
    if spec.write_back == "receipts" and wanted == NOTHING:
        return Due(task, path, receipts) if receipts else None
    shows_status = spec.write_back == "status"
    return Due(task, path, receipts, partial(_edited, task, shows_status, wanted, receipts))


def _tell(hv: Context, task: Task, error: Exception) -> None:
    said = f"{UNWRITTEN}{error}"[:500]
    hv.store.write_unsynced(
        event_log.note, "file", {"said": said}, hv.actor, hv.now(), task=task.id, batch=task.batch
    )


def _edited(
    task: Task, shows_status: bool, wanted: Edit, receipts: Sequence[Receipt], data: bytes
) -> bytes:
    """The file with all of it in one step. What its owner changed meanwhile is left to them."""
    from hypervisor.inputs.task_files.markdown import parse, with_body_line, with_fields
    from hypervisor.inputs.task_files.receipts_section import with_receipts

    now = parse(data).fields
    fields = {k: v for k, v in wanted.set.items() if now.get(k) == wanted.was.get(k)}
    if shows_status:
        fields |= fields_for(task, now)
    if fields:
        data = with_fields(data, fields)
    for line in wanted.lines:
        data = with_body_line(data, line)
    return with_receipts(data, receipts) if receipts else data


def file_problems(hv: Context, batch: str) -> list[str]:
    """What in the task files of a batch is not as the receipts were written there."""
    files = hv.task_files if hv.is_equipped else None
    if files is None:
        return []
    spec = _spec_of(hv, batch)
    if spec is None or spec.write_back == "none":
        return []
    from hypervisor.inputs.task_files.receipts_section import receipt_problems

    by_task: dict[str, list[Receipt]] = {}
    for receipt in hv.store.read(receipts_sql.chain_receipts, batch):
        by_task.setdefault(receipt.task, []).append(receipt)
    found: list[str] = []
    others: list[Receipt] = []
    for task, receipts in by_task.items():
        if task:
            path = _path(hv, spec, hv.store.read(queries.task, task))
            if path is None:
                continue
            try:
                data = files.read(path)
            except (HypervisorError, OSError) as error:
                found.append(f"{path} cannot be read: {error}")
                continue
            if receipt_problems(data, receipts):  # maybe lines of other runs over the same file
                others = others or _other_receipts(hv, batch)
                problems = receipt_problems(data, receipts, others)
                found += [f"{path}: {problem}" for problem in problems]
    return found


def _other_receipts(hv: Context, batch: str) -> list[Receipt]:
    chains = [report.chain for report in hv.store.read(receipts_sql.check, None)]
    return [
        receipt
        for chain in chains
        if chain != batch
        for receipt in hv.store.read(receipts_sql.chain_receipts, chain)
    ]


def fields_for(task: Task, now: dict[str, Any]) -> dict[str, Any]:
    """What the front matter shall say; a person's assignee is never replaced."""
    columns = task.data.get("columns") if isinstance(task.data, dict) else None
    before = columns.get("status") if isinstance(columns, dict) else None
    status = before if task.state in (ACTIVE, WAITING) else task.state
    fields: dict[str, Any] = {}
    if _is_ours(task, now.get("status"), before):
        fields["status"] = status
    if task.state == IN_PROGRESS and not now.get("assignee"):
        fields["assignee"] = "hypervisor"
    summary = text_of(task.result, "summary") if task.state == "done" else ""
    if summary:
        fields["summary"] = " ".join(summary.split())
    if task.reason and task.state in ("failed", "blocked"):
        fields["summary"] = " ".join(task.reason.split())
    return fields


def _is_ours(task: Task, status: Any, before: Any) -> bool:
    """Whether nobody but us has changed the status since the run began."""
    if status is None or status in (before, IN_PROGRESS):
        return True
    return task.state == IN_PROGRESS and task.attempts > 1  # as an earlier attempt has left it


def _path(hv: Context, spec: RunSpec, task: Task) -> str | None:
    """Where the file is, also after a plan has moved it; None if a plan has deleted it."""
    path = os.path.join(spec.cwd, item_of(task).text)
    if os.path.lexists(path):
        return path
    from hypervisor.batches.plans.plan import current_paths

    return current_paths(hv, hv.store.read(queries.batch, task.batch)).get(path, path)


def _spec(hv: Context, task: Task) -> RunSpec | None:
    return _spec_of(hv, task.batch) if task.batch else None


def _spec_of(hv: Context, batch: str) -> RunSpec | None:
    try:
        return spec_from(hv.store.read(queries.batch, batch).spec)
    except (InvalidInput, NotFound):  # nothing runs it
        return None
