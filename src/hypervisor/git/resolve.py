"""Resolving a conflict by hand: a workspace with both sides in it, then back into the queue."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput, WorkspaceError, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.git import sql
from hypervisor.git.collect import task_ref, unresolved
from hypervisor.git.conflict import Prepared, bring_together
from hypervisor.git.files import write_file
from hypervisor.git.landing import find_tip
from hypervisor.git.review import approve
from hypervisor.git.workplace import Workplace, open_workplace
from hypervisor.git.workspace import Workspace, create, open_existing
from hypervisor.queue import lifecycle
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.task import Task

RESOLVING = "resolving-{}.json"  # by attempt, beside the workspace: it is prepared only once


class Resolution(NamedTuple):
    """A workspace to resolve a conflict in. `base`, `ours` and `theirs` are commits; `conflicts`
    are files that still have conflict markers. `state`: of the task, by now."""

    task: str
    state: str
    reason: str
    folder: str
    base: str
    ours: str
    theirs: str
    conflicts: tuple[str, ...]


def resolve_conflict(
    hv: Context, task: str, done: bool = False, now: int | None = None
) -> Resolution:
    """Prepare a workspace to resolve a task's conflict in, or merge it when that is done."""
    found = hv.store.read(queries.task, hv.resolve(task))
    if found.state != lifecycle.REVIEW:
        state = lifecycle.state_name(found.state)
        raise WrongState(f"{found.id} is {state}, not in review. Nothing was changed.")
    workspace, entry = _workspace(hv, found)
    path = os.path.join(workspace.state, RESOLVING.format(found.attempts))
    made = _read(path) or _prepare(hv, found, workspace, entry, path, hv.at(now))
    left = tuple(unresolved(workspace)) if made.theirs else ()
    if not done:
        return Resolution(found.id, found.state, found.reason or "", *made[:4], left)
    if left:
        raise WrongState(
            f"{', '.join(left[:20])} in {workspace.folder} still have conflict markers. Nothing "
            f"was changed; resolve them, then run `hv resolve {found.id} --done` again."
        )
    moved = approve(hv, found.id, "resolved by hand", now)
    with suppress(FileNotFoundError):
        os.unlink(path)
    return Resolution(found.id, moved.state, "", *made[:4], ())


def _workspace(hv: Context, task: Task) -> tuple[Workspace, sql.EntryRow | None]:
    row = hv.store.read(sql.workspace, task.id)
    host = hv.probe.host()
    if row is not None and row.host != host:
        raise InvalidInput(f"{task.id} worked on host {row.host}; resolve it there.")
    entry = hv.store.read(sql.entry, task.id, task.attempts)
    workspace = open_existing(row.folder) if row is not None else None
    if workspace is not None:
        return workspace, entry
    if row is None or entry is None:
        raise WorkspaceError(f"{task.id} has no workspace; `hv retry {task.id}` runs it again.")
    place = open_workplace(hv, task.batch)
    branch = f"hv/{task.batch}/{task.id}"
    made = create(place.hub, row.folder, branch, entry.base, place.spec.git.sparse)
    made.git.run("checkout", "--quiet", "--force", "-B", branch, entry.head)
    return made, entry


def _prepare(
    hv: Context,
    task: Task,
    workspace: Workspace,
    entry: sql.EntryRow | None,
    path: str,
    now: int,
) -> Prepared:
    """Merge the target, as it is now, into the work. Without an entry the work could not even be
    collected: then its folder is left as it is."""
    head = entry.head if entry else workspace.hub.git.commit_of(task_ref(task.id, task.attempts))
    if entry is None or head is None:
        return Prepared(workspace.folder, workspace.base, head or "", "", ())
    tip = _target(hv, open_workplace(hv, task.batch), task.id) or entry.tip
    if not tip:
        return Prepared(workspace.folder, entry.base, head, "", ())
    made = bring_together(workspace, task.id, task.attempts, tip, now=now)
    hv.store.write(sql.set_tip, task.id, task.attempts, tip)
    write_file(path, json.dumps(made))
    return made


def _target(hv: Context, place: Workplace, task: str) -> str:
    tip = find_tip(place.destination(hv, task))
    return tip if isinstance(tip, str) else ""


def _read(path: str) -> Prepared | None:
    try:
        with open(path, encoding="utf-8") as file:
            folder, base, ours, theirs, conflicts = json.load(file)
    except (OSError, ValueError):
        return None
    return Prepared(folder, base, ours, theirs, tuple(conflicts))
