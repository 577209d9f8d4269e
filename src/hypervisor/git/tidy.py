"""Tidying up after tasks: saving what killed attempts left, removing clones of finished tasks,
emptying the trash, deleting verification logs, verdicts, benches and refs that nobody needs, and
pruning hubs that nobody borrows from.

Nothing is deleted without proof that it is kept elsewhere: see removal.py. What stays has a reason.
"""

from __future__ import annotations

import glob
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.batches.retention import Cleared, delete_finished
from hypervisor.core.errors import HypervisorError, NotFound, StoreError, WorkspaceError
from hypervisor.core.records import NamedTuple
from hypervisor.git import sql
from hypervisor.git.bench import remove_unused
from hypervisor.git.collect import collect, task_ref
from hypervisor.git.elsewhere import hubs_of_mirrors, remove_from_exchanges
from hypervisor.git.files import write_file
from hypervisor.git.hub import Hub
from hypervisor.git.refresh import refresh_hubs
from hypervisor.git.removal import empty_trash, size_of, trash
from hypervisor.git.sending import Unsent
from hypervisor.git.setting_up import tear_down_later
from hypervisor.git.snapshot import take
from hypervisor.git.stack import is_merged
from hypervisor.git.unused_refs import BASES, UnusedRefs
from hypervisor.git.workspace import STATE, Workspace, open_existing
from hypervisor.queue import lifecycle
from hypervisor.queue.old_events import delete_old_events
from hypervisor.queue.sql import queries
from hypervisor.runs.outputs import retention
from hypervisor.runs.processes import tree
from hypervisor.runs.spec import spec_from

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.task import Task

KEPT_MS = 60_000  # a workspace stays for so long after its task is over
DAY_MS = 86_400_000
MAX_BATCHES = 1_000_000
PRUNE_MS = 15 * DAY_MS
GRACE = 2.0  # seconds for what a dead worker left running
ENDED = tuple(sorted(lifecycle.TERMINAL))
OF_TASK = ("refs/hv/snapshots", "refs/hv/kept", "refs/hv/tasks", "refs/hv/ended")

logger = logging.getLogger("hypervisor.git")


class Place(NamedTuple):
    """A clone or another folder: its size in bytes, and why it is kept; () if it is removed."""

    path: str
    bytes: int
    why_kept: tuple[str, ...] = ()


class Tidied(NamedTuple):
    """`workspaces` go to the trash first, where they still use space. `deleted_bytes` were freed,
    or would be in a dry run."""

    workspaces: tuple[Place, ...] = ()
    trash: tuple[Place, ...] = ()
    logs: int = 0
    refs: int = 0
    deleted_bytes: int = 0
    benches: int = 0  # checkouts for verification
    unused_refs: int = 0  # where batches started, and what landed last
    verdicts: int = 0  # cached results of verification

    @property
    def kept(self) -> list[Place]:
        return [place for place in (*self.workspaces, *self.trash) if place.why_kept]


class Freed(NamedTuple):
    """What `gc` deleted (or would, in a dry run) and what it kept; `homes` are those of agents.
    `events` are those of the log; `batches` are the names of finished ones, `tasks` theirs and
    others."""

    outputs: int
    bytes: int
    kept: int
    kept_bytes: int
    homes: int
    git: Tidied
    events: int = 0
    batches: tuple[str, ...] = ()
    tasks: int = 0


def gc(hv: Context, dry_run: bool = False, now: int | None = None) -> Freed:
    """Delete outputs and events beyond the limits of age and size, and clones of finished tasks.

    Finished batches and tasks are deleted, too, if `finished_days` is set in config.toml.
    Unfinished tasks keep everything but old events. Clones go to a trash first, and are deleted
    later."""
    at, limits = hv.at(now), hv.settings.retention
    cleared = Cleared()
    if limits.finished_days is not None:
        cleared = delete_finished(hv, at - int(limits.finished_days * DAY_MS), dry_run, now)
    outputs = retention.gc(hv, dry_run, now)
    events = delete_old_events(hv, at - int(limits.event_days * DAY_MS), limits.events, dry_run)
    tidied = tidy(hv, dry_run=dry_run, now=now)
    return Freed(*outputs, tidied, events, cleared.batches, cleared.tasks)


def tidy(hv: Context, *, dry_run: bool = False, now: int | None = None) -> Tidied:
    """Remove clones of finished tasks and what else git keeps for too long."""
    at = hv.now() if now is None else now
    folder = os.path.join(hv.places.data, "git")
    if not os.path.isdir(folder):
        return Tidied()
    keep_ms = int(hv.settings.workspace.keep_days * DAY_MS)
    workspaces = remove_ended(hv, at, dry_run=dry_run)
    emptied = empty_trash(os.path.join(folder, "trash"), now=at, retention=keep_ms, dry_run=dry_run)
    places = tuple(Place(entry.path, entry.size, entry.why_kept) for entry in emptied)
    logs, log_bytes = _delete_logs(os.path.join(folder, "verify"), at - keep_ms, dry_run)
    benches = os.path.join(folder, "benches")
    unused = remove_unused(benches, (at - keep_ms) / 1000, dry_run=dry_run)
    verdicts = _drop_verdicts(hv, dry_run)
    refs, other_refs = _drop_refs(hv, at - keep_ms, at, dry_run=dry_run)
    freed = log_bytes + sum(unused) + sum(each.bytes for each in places if not each.why_kept)
    counts = (logs, refs, freed, len(unused), other_refs, verdicts)
    return Tidied(tuple(workspaces), places, *counts)


def remove_ended(hv: Context, now: int, *, dry_run: bool = False) -> list[Place]:
    """Move the clones of tasks that are over into the trash. What is not known to be saved
    elsewhere stays."""
    folder = os.path.join(hv.places.data, "git", "work")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [
        _removed(hv, os.path.join(folder, name), now, dry_run) for name in names if name != STATE
    ]


def _removed(hv: Context, folder: str, now: int, dry_run: bool) -> Place:
    size = size_of(folder)
    try:
        reasons = _in_use(hv, os.path.basename(folder), now)
        if not reasons and not dry_run:
            workspace = open_existing(folder)
            reasons = () if workspace is None else _to_trash(hv, workspace, now)
    except StoreError:
        raise
    except (HypervisorError, OSError) as error:
        reasons = (str(error),)
    if reasons:
        logger.info("%s stays: %s", folder, "; ".join(reasons))
    return Place(folder, size, tuple(reasons))


def _in_use(hv: Context, name: str, now: int) -> tuple[str, ...]:
    """Why the clone of a task is still needed."""
    try:
        task = hv.store.read(queries.task, name)
    except NotFound:
        return ()  # its batch was deleted
    row = hv.store.read(sql.workspace, name)
    if row is not None and row.host != hv.probe.host():
        return (f"it is on the host {row.host}",)
    if task.state not in ENDED:
        return (f"its task is {lifecycle.state_name(task.state)}",)
    if row is not None and not row.closed and _is_held(hv, row):
        return ("its worker has not finished with it",)
    return ("its task has just ended",) if task.updated_at > now - KEPT_MS else ()


def _to_trash(hv: Context, workspace: Workspace, now: int) -> tuple[str, ...]:
    """Collect the finished work first, so that it can still be merged. Why it stays, or ()."""
    name = os.path.basename(workspace.folder)
    row = hv.store.read(sql.workspace, name)
    attempt = row.attempt if row else 1
    with suppress(NotFound):
        task = hv.store.read(queries.task, name)
        attempt = row.attempt if row else max(task.attempts, 1)
        _tear_down(hv, workspace, task, attempt)
        if task.state == "done" and workspace.hub.git.commit_of(task_ref(name, attempt)) is None:
            collect(workspace, name, attempt, task.title, {}, now=now)
    moved = trash(workspace, name, attempt, now=now, in_use=lambda: list(_in_use(hv, name, now)))
    if moved.path is not None:
        hv.store.write(sql.forget_workspace, name, attempt)
    return moved.why_kept if moved.path is None else ()


def save_left(hv: Context, now: int) -> int:
    """Save what attempts left whose workers are dead; returns how many there were."""
    rows = left_by_dead(hv)
    for row in rows:
        try:
            tree.end_leftovers({f"{row.task}.{row.attempt}"}, None, None, GRACE)
            workspace = open_existing(row.folder)
            if workspace is not None:
                take(workspace, row.task, row.attempt, "its worker died", now=now)
                if hv.store.is_shared:
                    Unsent(hv.places.data).add(row.task, row.attempt)
                _tear_down(hv, workspace, hv.store.read(queries.task, row.task), row.attempt)
        except (WorkspaceError, OSError, NotFound, tree.TreeSurvived) as error:
            logger.warning("%s: not saved: %s", row.folder, error)
            continue
        hv.store.write(sql.close_workspace, row.task, row.attempt)
    return len(rows)


def left_by_dead(hv: Context) -> list[sql.WorkspaceRow]:
    """Workspaces of this host that are open, although their workers are dead."""
    rows = hv.store.read(sql.open_workspaces, hv.probe.host())
    return [row for row in rows if not _is_held(hv, row)]


def _is_held(hv: Context, row: sql.WorkspaceRow) -> bool:
    holder = hv.store.read(sql.holder, row.task, row.attempt)
    if holder is None:
        return False
    pid, start, boot = holder
    return boot == hv.probe.boot() and hv.probe.process_start(pid) == start


def _tear_down(hv: Context, workspace: Workspace, task: Task, attempt: int) -> None:
    spec = spec_from(hv.store.read(queries.batch, task.batch).spec)
    output = hv.outputs.setup_path(task.id, attempt)
    if problem := tear_down_later(hv, workspace, (spec, task.batch), (task.id, attempt), output):
        logger.warning("%s: %s", workspace.folder, problem)


def _delete_logs(folder: str, before: int, dry_run: bool) -> tuple[int, int]:
    """Outputs of verifications; returns how many, and their size."""
    count = total = 0
    for path in glob.glob(os.path.join(glob.escape(folder), "*")):
        with suppress(OSError):
            facts = os.lstat(path)
            if facts.st_mtime * 1000 < before and os.path.isfile(path):
                count, total = count + 1, total + facts.st_size
                if not dry_run:
                    os.unlink(path)
    return count, total


def _drop_verdicts(hv: Context, dry_run: bool) -> int:
    """Cached verdicts whose output is gone: they would point people to a file that is not there.
    Without one, the tree is just verified again."""
    verdicts = hv.store.read(sql.verdict_outputs)
    folder = os.path.join(hv.places.data, "git", "verify") + os.sep
    gone = [each for each in verdicts if each[2].startswith(folder) and not os.path.exists(each[2])]
    if gone and not dry_run:
        hv.store.write(sql.drop_verdicts, gone)
    return len(gone)


def _drop_refs(hv: Context, before: int, now: int, *, dry_run: bool) -> tuple[int, int]:
    """Snapshots of tasks that have been over for long, if their work is merged or their batch was
    deleted, and refs that no batch needs; returns how many of each. Then the hub is pruned."""
    snapshots = others = 0
    batches = hv.store.read(queries.batches, MAX_BATCHES, None)
    fresh, unused = refresh_hubs(hv, batches), UnusedRefs(hv, batches, before)
    specs = (batch.spec for batch in batches)
    mirrors = hubs_of_mirrors(hv.places.data, hv.probe.host(), specs)
    for path in sorted(glob.glob(os.path.join(glob.escape(hv.places.data), "git", "*.git"))):
        hub = Hub(path)
        tasks = _refs_by_task(hub)
        is_fresh = path in fresh
        over = {name for name in tasks if _is_over(hv, hub, name, before, is_fresh=is_fresh)}
        if path in mirrors:
            over |= {name for name in tasks if _is_sent(hv, name, before)}
        of_batches = unused.of(hub, is_fresh=is_fresh)
        others += len(of_batches)
        snapshots += _delete(hv, hub, over, of_batches, now, dry_run=dry_run)
        for inner in _submodules(hub):
            snapshots += _delete(hv, inner, over, [], now, dry_run=dry_run)
    return snapshots, others


def _delete(
    hv: Context, hub: Hub, tasks: set[str], others: list[str], now: int, *, dry_run: bool
) -> int:
    """Delete the snapshots of these tasks and other refs; returns how many snapshots."""
    doomed = [ref for name, refs in _refs_by_task(hub).items() if name in tasks for ref in refs]
    if not dry_run:
        bases = [ref.removeprefix(BASES) for ref in others if ref.startswith(BASES)]
        try:
            remove_from_exchanges(hub, hv.probe.host(), tasks, bases)
        except (WorkspaceError, OSError) as error:  # what is in the exchange is known by the refs
            logger.warning("%s", error)
            return 0
        hub.delete_refs([*doomed, *others])
        _prune(hv, hub, bool(doomed or others), now)
    return len(doomed)


def _submodules(hub: Hub) -> list[Hub]:
    """Their hubs, also those of submodules of submodules."""
    paths = sorted(glob.glob(os.path.join(glob.escape(hub.path), "modules", "*.git")))
    return [each for path in paths for each in (Hub(path), *_submodules(Hub(path)))]


def _prune(hv: Context, hub: Hub, has_dropped: bool, now: int) -> None:
    """Delete what no ref leads to, if nobody borrows from the hub. Git keeps new objects for two
    weeks, because a command may be about to use them, so there is a second time after that."""
    mark = os.path.join(hub.path, "hv-dropped")
    if has_dropped:
        write_file(mark, "")
        os.utime(mark, (now / 1000, now / 1000))
    if not os.path.exists(mark) or _has_borrowers(hv.places.data):
        return
    is_last = now - os.stat(mark).st_mtime * 1000 > PRUNE_MS
    if has_dropped or is_last:
        hub.git.run("gc", "--quiet", "--prune=2.weeks.ago")
    if is_last:
        os.unlink(mark)


def _refs_by_task(hub: Hub) -> dict[str, list[str]]:
    tasks: dict[str, list[str]] = {}
    for ref in hub.refs(*OF_TASK):
        tasks.setdefault(ref.split("/")[3], []).append(ref)
    return tasks


def _is_sent(hv: Context, name: str, before: int) -> bool:
    """Whether a task has been done for long, by work that the host with the repository has."""
    if os.path.exists(os.path.join(hv.places.data, "git", "work", name)):
        return False
    unsent = {task for task, _ in Unsent(hv.places.data).attempts()}
    with suppress(NotFound):
        task = hv.store.read(queries.task, name)
        return name not in unsent and task.state == "done" and task.updated_at < before
    return False


def _is_over(hv: Context, hub: Hub, name: str, before: int, *, is_fresh: bool) -> bool:
    """`is_fresh`: the hub has the user's branches as they are now."""
    if os.path.exists(os.path.join(hv.places.data, "git", "work", name)):
        return False
    if glob.glob(os.path.join(glob.escape(hv.places.data), "git", "trash", f"{name}.*")):
        return False
    try:
        task = hv.store.read(queries.task, name)
    except NotFound:
        return True
    if not is_fresh or task.state != "done" or task.updated_at >= before:
        return False
    finished = hub.git.commit_of(task_ref(name, max(task.attempts, 1)))
    if finished is None:
        return False
    targets = hub.refs("refs/heads").values()
    return any(is_merged(hub.git, finished, target) for target in dict.fromkeys(targets))


def _has_borrowers(data: str) -> bool:
    folders = (os.path.join(data, "git", name) for name in ("work", "trash", "benches"))
    return any(
        name != STATE for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)
    )
