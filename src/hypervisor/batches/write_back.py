"""Write task state and receipts back into task files.

The store is the source of truth; any process that finds a file out of date updates it, so a kill in
between does no harm.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from hypervisor.batches.sql import report as report_sql
from hypervisor.core.errors import HypervisorError, InvalidInput, NotFound, StoreError
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.changed_items import own_changes
from hypervisor.inputs.items import item_of
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import ACTIVE, IN_PROGRESS, WAITING
from hypervisor.queue.receipt import Receipt
from hypervisor.queue.result import NOTHING, Edit, edit_in, text_of
from hypervisor.queue.sql import event_log, queries
from hypervisor.queue.sql import receipts as receipts_sql
from hypervisor.queue.task import Task
from hypervisor.runs.spec import RunSpec, spec_from
from hypervisor.store.database import slices

if TYPE_CHECKING:
    from hypervisor.inputs.task_files.files import TaskFiles

UNWRITTEN = "cannot write its file: "


class FileChange(NamedTuple):
    """What a task's file should show: an edit, or only its receipts."""

    task: Task
    path: str
    receipts: Sequence[Receipt]
    edit: Callable[[bytes], bytes] | None = None


def write_back(
    hv: Context, tasks: Sequence[str], spec: RunSpec | None = None, edits: bool = False
) -> int:
    """Bring the files of these tasks up to date; returns how many changed.

    `spec`: that of their batch, if known. With `edits`, the edits that results ask for are made:
    only when attempts end, so an edit that the owner reverts later is not made again."""
    files = hv.task_files if hv.is_equipped else None
    written = 0
    if files is None or (spec is not None and not _changes_files(spec)):
        return written
    with suppress(StoreError):  # the files stay out of date until the next run or sync
        for page in slices(tasks):
            changes = list(_changes(hv, page, spec, edits))
            with own_changes(hv.store, {change.task.id: change.path for change in changes}):
                written += _write(hv, files, changes)
    return written


def _changes(
    hv: Context, tasks: Sequence[str], spec: RunSpec | None, edits: bool
) -> Iterator[FileChange]:
    specs: dict[str, RunSpec | None] = {}
    shown: list[tuple[Task, RunSpec]] = []
    for task in hv.store.read(queries.tasks, tasks):
        if task.batch not in specs:
            specs[task.batch] = spec or _spec(hv, task)
        own = specs[task.batch]
        if own is not None and _changes_files(own):
            shown.append((task, own))
    receipts = hv.store.read(receipts_sql.of_tasks, [task.id for task, _ in shown])
    for task, own in shown:
        if change := _change(hv, own, task, receipts[task.id], edits):
            yield change


def _write(hv: Context, files: TaskFiles, changes: Iterable[FileChange]) -> int:
    """Receipts alone are appended; edits are made all at once."""
    written = 0
    edits: list[tuple[Task, str, Callable[[bytes], bytes]]] = []
    for change in changes:
        if change.edit is not None:
            edits.append((change.task, change.path, change.edit))
            continue
        try:
            written += files.append_receipts(change.path, change.receipts)
        except (HypervisorError, OSError) as error:
            _note_failure(hv, change.task, error)
    outcomes = files.change_all([(path, edit) for _, path, edit in edits])
    for (task, _, _), outcome in zip(edits, outcomes, strict=True):
        if isinstance(outcome, Exception):
            _note_failure(hv, task, outcome)
        else:
            written += outcome
    return written


class Unwritten(NamedTuple):
    """A task file that could not be brought up to date."""

    task: str
    path: str
    reason: str


def unwritten(hv: Context, batch: str, since: int = 0) -> list[Unwritten]:
    """The files of a batch that could not be written since then, and are still out of date."""
    files = hv.task_files if hv.is_equipped else None
    spec = _spec_of(hv, batch)
    if files is None or spec is None or not _changes_files(spec):
        return []
    noted = hv.store.read(report_sql.noted, "file", batch, since)
    files_behind: list[Unwritten] = []
    for task in hv.store.read(queries.tasks, list(noted)):
        change = _change(hv, spec, task, hv.store.read(receipts_sql.of_task, task.id), edits=True)
        if change is not None and _is_behind(files, change):
            reason = str((noted[task.id] or {}).get("message", "")).removeprefix(UNWRITTEN)
            files_behind.append(Unwritten(task.id, change.path, reason))
    return files_behind


def _is_behind(files: TaskFiles, change: FileChange) -> bool:
    from hypervisor.inputs.task_files.receipts_section import with_receipts

    try:
        data = files.read(change.path)
        expected = change.edit(data) if change.edit else with_receipts(data, change.receipts)
    except (HypervisorError, OSError):
        return True
    return expected != data


def _change(
    hv: Context, spec: RunSpec, task: Task, receipts: Sequence[Receipt], edits: bool
) -> FileChange | None:
    path = _path(hv, spec, task)
    if path is None:
        return None
    edit = edit_in(task.result) if edits and task.state == "done" else NOTHING
    if spec.write_back == "receipts" and edit == NOTHING:
        return FileChange(task, path, receipts) if receipts else None
    shows_status = spec.write_back == "status"
    return FileChange(task, path, receipts, partial(_edited, task, shows_status, edit, receipts))


def _note_failure(hv: Context, task: Task, error: Exception) -> None:
    message = f"{UNWRITTEN}{error}"[:500]
    hv.store.write_unsynced(
        event_log.note,
        "file",
        {"message": message},
        hv.actor,
        hv.now(),
        task=task.id,
        batch=task.batch,
    )


def _edited(
    task: Task, shows_status: bool, edit: Edit, receipts: Sequence[Receipt], data: bytes
) -> bytes:
    """The new content of the file. Concurrent changes by its owner are kept."""
    from hypervisor.inputs.task_files.markdown import parse, with_body_line, with_fields
    from hypervisor.inputs.task_files.receipts_section import with_receipts

    now = parse(data).fields
    fields = {k: v for k, v in edit.set.items() if now.get(k) == edit.was.get(k)}
    if shows_status:
        fields |= fields_for(task, now)
    if fields:
        data = with_fields(data, fields)
    for line in edit.lines:
        data = with_body_line(data, line)
    return with_receipts(data, receipts) if receipts else data


def file_problems(hv: Context, batch: str) -> list[str]:
    """Receipts that are missing or changed in the task files of a batch."""
    files = hv.task_files if hv.is_equipped else None
    if files is None:
        return []
    spec = _spec_of(hv, batch)
    if spec is None or not _changes_files(spec):
        return []
    from hypervisor.inputs.task_files.receipts_section import receipt_problems

    by_task: dict[str, list[Receipt]] = {}
    for receipt in hv.store.read(receipts_sql.chain_receipts, batch):
        by_task.setdefault(receipt.task, []).append(receipt)
    all_problems: list[str] = []
    other_receipts: list[Receipt] = []
    for task, receipts in by_task.items():
        if task:
            path = _path(hv, spec, hv.store.read(queries.task, task))
            if path is None:
                continue
            try:
                data = files.read(path)
            except (HypervisorError, OSError) as error:
                all_problems.append(f"{path} cannot be read: {error}")
                continue
            if receipt_problems(data, receipts):  # maybe lines of other runs over the same file
                other_receipts = other_receipts or _other_receipts(hv, batch)
                problems = receipt_problems(data, receipts, other_receipts)
                all_problems += [f"{path}: {problem}" for problem in problems]
    return all_problems


def _other_receipts(hv: Context, batch: str) -> list[Receipt]:
    chains = [report.chain for report in hv.store.read(receipts_sql.check, None)]
    return [
        receipt
        for chain in chains
        if chain != batch
        for receipt in hv.store.read(receipts_sql.chain_receipts, chain)
    ]


def fields_for(task: Task, now: dict[str, Any]) -> dict[str, Any]:
    """The new front matter; an assignee set by a person is never replaced."""
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
    """Whether only we have changed the status since the run began."""
    if status is None or status in (before, IN_PROGRESS):
        return True
    return task.state == IN_PROGRESS and task.attempts > 1  # as an earlier attempt has left it


def _changes_files(spec: RunSpec) -> bool:
    """A run with `propose` leaves all changes to the plan, which can be undone."""
    return spec.write_back != "none" and not spec.propose


def _path(hv: Context, spec: RunSpec, task: Task) -> str | None:
    """The file's path, even after a plan has moved it; None if a plan has deleted it."""
    path = os.path.join(spec.cwd, item_of(task).text)
    if os.path.lexists(path):
        return path
    from hypervisor.batches.plans.plan import current_paths  # only where plans have moved files

    return current_paths(hv, hv.store.read(queries.batch, task.batch)).get(path, path)


def _spec(hv: Context, task: Task) -> RunSpec | None:
    return _spec_of(hv, task.batch) if task.batch else None


def _spec_of(hv: Context, batch: str) -> RunSpec | None:
    try:
        return spec_from(hv.store.read(queries.batch, batch).spec)
    except (InvalidInput, NotFound):  # nothing runs it
        return None
