"""Running a batch again: which tasks are redone, and which changes are refused."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from hypervisor.core.errors import BatchConflict, BatchPaused, InvalidInput, NotFound
from hypervisor.core.text import pluralize
from hypervisor.inputs.item_files import path_of_item
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import DONE, IN_PROGRESS
from hypervisor.queue.pause import BATCH, INTERRUPTED, Pause
from hypervisor.queue.sql import claims, item_files, queries
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.queue.task import Batch, Json
from hypervisor.runs.spec import RunSpec, spec_data, spec_from

# Of the tasks that are done: those whose files have changed since, all, or none.
Rerun = Literal["changed", "all", "unfinished"]

OURS = ("supervisor", "worker-")  # actors that are not people
# A change of one of these makes it different work; workers, limits, budgets and permissions may
# change freely.
WORK = {
    "command": "command",
    "function": "function",
    "agent": "agent",
    "prompt": "prompt",
    "shell": "--shell",
    "stdin": "--stdin",
    "cwd": "folder",
}
MAX_SHOWN_LENGTH = 200


def tasks_to_redo(
    hv: Context, cwd: str, tasks: Mapping[str, Json], rerun: Rerun, since: int
) -> list[str]:
    """Which of these tasks, given with their data, are to be done again. Tasks done after `since`
    are not: a worker has just finished them."""
    done = hv.store.read(item_files.done_files, list(tasks)) if tasks else {}
    before = [task for task, file in done.items() if file.done_at < since]
    if rerun == "unfinished" or not before:
        return []
    if rerun == "all":
        return before
    from hypervisor.inputs.changed_items import changed_tasks

    items = ((task, path_of_item(tasks[task], cwd)) for task in before)
    paths = {task: path for task, path in items if path is not None}
    behind = hv.store.read(item_files.behind, before)
    return sorted(behind | changed_tasks(hv.store, paths))


def has_columns(data: Json) -> bool:
    return isinstance(data, dict) and isinstance(data.get("columns"), dict)


def current_data(old: Json, new: Json) -> Json:
    """The data of a task whose file has changed, with the new columns, except for a status that we
    wrote ourselves."""
    if not (has_columns(old) and has_columns(new)):
        return old
    before, columns = old["columns"], new["columns"]
    if columns.get("status") == DONE and "status" in before:
        columns = {**columns, "status": before["status"]}
    return {**old, "columns": columns}


def check_same_work(hv: Context, name: str, spec: RunSpec, rerun: Rerun) -> None:
    """Refuse to reuse a batch whose tasks were done, or are being done, by different work."""
    batch = _batch(hv, name)
    before = _spec(batch)
    if batch is None or before is None:
        return
    old = spec_data(before)
    field = _other_work(old, spec_data(spec))
    if field is None:
        return
    states = hv.store.read(queries.stats, batch.id, hv.now(), False).states
    running = states[IN_PROGRESS] - _held_by_dead_workers(hv, batch)
    done, shown = states[DONE], shlex.quote(name)
    if running > 0:
        raise BatchConflict(
            f"batch {name} is being run with another {WORK[field]}{_shown(old, field)}: "
            f"{pluralize(running, 'task')} of it {'is' if running == 1 else 'are'} running. "
            f"Nothing was changed. Wait for the end (`hv status {shown} --watch`), or choose "
            "another --name."
        )
    if done and rerun == "changed":
        raise BatchConflict(
            f"batch {name} was run with another {WORK[field]}{_shown(old, field)}, and "
            f"{pluralize(done, 'task')} of it {'is' if done == 1 else 'are'} done. Nothing was "
            "changed. Add --again to run everything with the new one, --no-changed to skip what "
            f"is done, or choose another --name; `hv summary {shown}` shows what was done."
        )


def _held_by_dead_workers(hv: Context, batch: Batch) -> int:
    """How many tasks of the batch are claimed by dead workers of this host."""
    holders = hv.store.read(claims.holders, hv.probe.boot(), hv.now())
    task_ids = [holder.task for holder in holders if hv.probe.is_gone(holder.worker)]
    tasks = hv.store.read(queries.tasks, task_ids) if task_ids else []
    return sum(task.batch == batch.id for task in tasks)


def other_work_since(hv: Context, submitted: Batch) -> str | None:
    """What has changed since this batch was submitted, such as "command"."""
    now = _spec(_batch(hv, submitted.id))
    before = _spec(submitted)
    field = _other_work(spec_data(before), spec_data(now)) if before and now else None
    return WORK[field] if field else None


def _other_work(old: Json, new: Json) -> str | None:
    """The first field that differs. A skill does not depend on the folder it is started in."""
    fields = (field for field in WORK if not (new.get("skill") and field == "cwd"))
    return next((field for field in fields if old.get(field) != new.get(field)), None)


def check_not_paused(hv: Context, names: Sequence[str]) -> None:
    """Refuse to lift a pause that was set by a person."""
    batches = {batch.id: batch for name in names if (batch := _batch(hv, name))}
    for pause in hv.store.read(pauses_sql.pauses) if batches else ():
        if pause.scope == BATCH and pause.name in batches and is_by_person(pause):
            batch = batches[pause.name]
            reason = f" ({pause.reason[:MAX_SHOWN_LENGTH]})" if pause.reason else ""
            raise BatchPaused(
                batch.name,
                f"batch {batch.name} was paused by {pause.actor}{reason}. Nothing was changed; "
                f"`hv resume {shlex.quote(batch.name)}` lifts the pause.",
            )


def is_by_person(pause: Pause) -> bool:
    """Interrupted runs, workers and the supervisor pause batches, too."""
    return pause.reason != INTERRUPTED and not pause.actor.startswith(OURS)


def _batch(hv: Context, name: str) -> Batch | None:
    try:
        return hv.store.read(queries.batch, name)
    except NotFound:
        return None


def _spec(batch: Batch | None) -> RunSpec | None:
    try:
        return spec_from(batch.spec) if batch and batch.spec is not None else None
    except InvalidInput:  # of another version
        return None


def _shown(spec: Json, field: str) -> str:
    """The earlier value, if it is short enough to show."""
    value = spec.get(field)
    text = shlex.join(value) if isinstance(value, list) else value if field != "prompt" else ""
    return f" (`{text}`)" if isinstance(text, str) and 0 < len(text) <= MAX_SHOWN_LENGTH else ""
