"""Workspaces of attempts as clones of a git repository: see runs/workspaces.py.

One folder per task, because agents find their sessions by path. What an earlier attempt left in it
is saved before anything else happens to it, however that attempt ended.
"""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError, WorkspaceError
from hypervisor.core.places import private_folder
from hypervisor.core.private_folders import make_private_folders
from hypervisor.git import sql
from hypervisor.git.base import base_of, repository_on
from hypervisor.git.conflict import bring_together
from hypervisor.git.destination import destination_of, lane_tip
from hypervisor.git.elsewhere import fetch_base, is_elsewhere, mark_ended, send_work
from hypervisor.git.files import locked
from hypervisor.git.hub import Hub, base_ref, open_hub
from hypervisor.git.removal import trash
from hypervisor.git.sending import Unsent
from hypervisor.git.setting_up import set_up, tear_down, tear_down_later
from hypervisor.git.slots import Slot, take_slot
from hypervisor.git.snapshot import Snapshot, latest, take, thin_out
from hypervisor.git.workspace import Workspace, create, open_existing, state_folder
from hypervisor.queue.sql import merging
from hypervisor.runs.workspaces import NotSetUp, Opened, Returned

if TYPE_CHECKING:
    from hypervisor.queue.lease import Lease
    from hypervisor.queue.stop import Stop
    from hypervisor.queue.task import Task
    from hypervisor.runs.worker import WorkerContext

EVERY = 30.0  # seconds between snapshots
ENDED = "the attempt ended"
FROM_BASE = "It starts from there again, without the files of the earlier attempt."

logger = logging.getLogger("hypervisor.git")


class AttemptWorkspaces:
    def __init__(self, ctx: WorkerContext) -> None:
        self._ctx, self._hv, self._spec = ctx, ctx.hv, ctx.spec
        self._is_elsewhere = is_elsewhere(ctx.spec, ctx.hv.probe.host())
        self._repository = repository_on(ctx.hv, ctx.spec)
        self._root = ctx.spec.git.root if self._is_elsewhere else self._repository.root
        self._hub: Hub | None = None
        self._saved_at = 0.0
        self._slot: Slot | None = None
        self._problem = ""  # the last one with snapshots

    def returned(self, task: Task) -> Returned | None:
        entry = self._hv.store.read(sql.last_entry, task.id, task.attempts)
        if entry is None or entry.state != "returned":
            return None
        return Returned(entry.reason, same_author=entry.round == 0)

    def open(self, lease: Lease, continues: bool) -> Opened:
        task = lease.task
        hub, folder = self._open_hub(), work_folder(self._hv.places.data, task.id)
        self._reserve(folder, lease)
        left = open_existing(folder)
        if left is not None:
            left = self._make_way(left, task, continues)
        if left is not None:
            workspace, note = left, self._bring_conflict(left, task)
        else:
            base = self._base(hub, task)
            workspace = create(hub, folder, self._branch(task), base, self._spec.git.sparse)
            note = FROM_BASE if task.attempts > 1 else ""
        self._saved_at = 0.0
        inside = os.path.relpath(self._spec.cwd, self._root)
        place = os.path.normpath(os.path.join(workspace.folder, inside))
        os.makedirs(place, exist_ok=True)
        env = {**workspace.environment, **self._take_slot().environment}
        env["COMPOSE_PROJECT_NAME"] = f"hv-{task.id.lower()}"
        try:
            set_up(self._ctx, lease, workspace, self._repository, env)
        except NotSetUp:
            self._end(lease, "setting up failed")
            raise
        return Opened(
            place,
            env,
            _description(workspace, note),
            original=self._root,
            copy=workspace.folder,
            sparse=workspace.sparse,
        )

    def _reserve(self, folder: str, lease: Lease) -> None:
        """From here on nobody removes the workspace: `hv gc` looks again under this lock."""
        task, host = lease.task, self._hv.probe.host()
        row = sql.WorkspaceRow(task.id, task.attempts, host, self._root, folder, False)
        if not self._hv.store.write(sql.save_workspace, row, self._hv.now()):
            raise OSError(errno.ESTALE, "a later attempt works in its clone")
        make_private_folders(state_folder(folder))
        with locked(os.path.join(state_folder(folder), "lock")):
            pass

    def _take_slot(self) -> Slot:
        """A number that no other attempt on this host has at the same time."""
        self._free_slot()
        self._slot = take_slot(private_folder("slots"))  # of all stores of this user
        return self._slot

    def _free_slot(self) -> None:
        if self._slot is not None:
            self._slot.close()
            self._slot = None

    def _make_way(self, left: Workspace, task: Task, continues: bool) -> Workspace | None:
        """Save what an earlier attempt left; move it away, unless this one continues with it."""
        before = max(task.attempts - 1, 1)
        self._tear_down_later(left, task.id, before)
        if continues:
            self._save(left, task.id, before, "before the next attempt")
            return left
        moved = trash(left, task.id, before, now=self._hv.now(), even_unsaved=True)
        if moved.path is None:
            why = f"{left.folder} is in use: {'; '.join(moved.why_kept)}"
            raise OSError(errno.EBUSY, why)  # no fault of the task: it is tried again
        return None

    def _tear_down_later(self, left: Workspace, task: str, attempt: int) -> None:
        """For a worker that was killed before it could."""
        output = self._ctx.outputs.setup_path(task, attempt)
        batch = (self._spec, self._ctx.batch)
        if problem := tear_down_later(self._hv, left, batch, (task, attempt), output):
            self._ctx.note("setup", {"message": problem}, task)

    def look(self, lease: Lease, now: float) -> None:
        if not self._saved_at:
            self._saved_at = now
        elif now - self._saved_at >= EVERY:
            self._saved_at = now
            self._save_current(lease, "while it worked")

    def stopped(self, lease: Lease, stop: Stop) -> None:
        self._end(lease, f"stopped: {stop.reason}")

    def closed(self, lease: Lease) -> None:
        self._end(lease, ENDED)

    def forget(self, task: str) -> None:
        """The merger removes the workspaces of ended tasks, once it has proof that nothing is
        lost."""

    def _end(self, lease: Lease, reason: str) -> None:
        if workspace := self._existing(lease.task.id):
            tear_down(self._ctx, lease, workspace)
        self._free_slot()
        with suppress(OSError):
            os.chdir("/")  # a folder that a process is in cannot be moved away
            os.chdir(self._spec.cwd)
        self._save_current(lease, reason)
        self._send(lease)
        self._hv.store.write(sql.close_workspace, lease.task.id, lease.task.attempts)

    def _save_current(self, lease: Lease, reason: str) -> None:
        if workspace := self._existing(lease.task.id):
            self._save(workspace, lease.task.id, lease.task.attempts, reason)

    def _send(self, lease: Lease) -> None:
        """Before the end of the attempt is written down, to the host that merges; later if that
        is not possible now."""
        task, attempt = lease.task.id, lease.task.attempts
        if not self._is_elsewhere:
            return
        unsent, hub = Unsent(self._hv.places.data), self._open_hub()
        unsent.add(task, attempt)
        try:
            if last := latest(hub, task, attempt):
                mark_ended(hub, task, attempt, last.commit)
            send_work(hub, self._spec.git, task, attempt)
            unsent.remove(task, attempt)
        except (WorkspaceError, OSError) as error:
            self._note_problem(task, f"not sent to host {self._spec.git.host} yet: {error}")

    def _existing(self, task: str) -> Workspace | None:
        try:
            return open_existing(work_folder(self._hv.places.data, task))
        except (WorkspaceError, OSError) as error:
            logger.warning("%s: no snapshot: %s", task, error)
            return None

    def _save(self, workspace: Workspace, task: str, attempt: int, reason: str) -> None:
        """A snapshot that fails does not end the attempt: the files stay where they are."""
        try:
            taken = take(workspace, task, attempt, reason, now=self._hv.now())
            if taken.is_new:
                thin_out(workspace.hub, task, attempt, self._ctx.settings.workspace.snapshots)
                if self._is_elsewhere:
                    Unsent(self._hv.places.data).add(task, attempt)
        except (WorkspaceError, OSError) as error:
            self._note_problem(task, f"no snapshot: {error}")
            return
        if reason == ENDED and not self._spec.git.merge and self._is_unchanged(taken):
            self._hv.store.write(merging.changed_nothing, task, attempt, now=self._hv.now())
            self._ctx.note(
                "snapshot", {"commit": taken.commit, "message": "it changed nothing"}, task
            )
        if taken.left_out and taken.is_new:
            message = "not in its snapshot: " + ", ".join(map(str, taken.left_out[:10]))
            self._ctx.note("snapshot", {"commit": taken.commit, "message": message}, task)

    def _note_problem(self, task: str, problem: str) -> None:
        """Once, as long as it stays the same: a full disk is met every 30 seconds."""
        logger.warning("%s: %s", task, problem)
        if problem != self._problem:
            self._problem = problem
            with suppress(StoreError):
                self._ctx.note("snapshot", {"message": problem}, task)

    def _is_unchanged(self, taken: Snapshot) -> bool:
        return taken.tree == self._open_hub().tree_of(taken.base)

    def _open_hub(self) -> Hub:
        if self._hub is None:
            self._hub = open_hub(self._hv.places.data, self._repository)
        return self._hub

    def _base(self, hub: Hub, task: Task) -> str:
        """The newest commit that is known to be on the merge target: what landed last, or what the
        work of the last attempt did not merge with; until there is one, the base of the batch."""
        base = base_of(hub, self._spec)
        if not self._spec.git.merge:
            return base
        entry = self._hv.store.read(sql.last_entry, task.id, task.attempts)
        if entry and entry.tip:
            self._get(hub, entry.tip)
        for commit in (entry.tip if entry else "", self._landed(hub)):
            if commit and hub.git.succeeds("merge-base", "--is-ancestor", base, commit):
                base = commit
        return base

    def _get(self, hub: Hub, commit: str) -> None:
        """A commit of the host that merges. OSError: not now, so the task is tried again."""
        if self._is_elsewhere and hub.git.commit_of(commit) is None:
            fetch_base(self._hv.places.data, self._spec, commit)
            hub.fetch(self._repository.common_dir, [(commit, base_ref(commit))])

    def _landed(self, hub: Hub) -> str | None:
        repository, batch = self._repository, self._ctx.batch
        return lane_tip(destination_of(self._hv, hub, repository, self._spec, batch))

    def _branch(self, task: Task) -> str:
        return f"hv/{self._ctx.batch}/{task.id}"

    def _bring_conflict(self, workspace: Workspace, task: Task) -> str:
        """Merge what the work conflicted with into the workspace, conflicts and all."""
        if self.returned(task) is None:
            return "The files are as the last attempt left them."
        entry = self._hv.store.read(sql.last_entry, task.id, task.attempts)
        if entry is None or not entry.tip:
            return ""
        try:
            self._get(workspace.hub, entry.tip)
            before = (task.id, task.attempts - 1)
            made = bring_together(workspace, *before, entry.tip, now=self._hv.now())
        except (WorkspaceError, OSError) as error:
            return f"Commit {entry.tip[:12]} could not be merged into it: {error}"
        if not made.conflicts:
            return f"Commit {entry.tip[:12]}, which has landed since, was merged into it."
        return (
            f"Commit {entry.tip[:12]}, which has landed since, was merged into it, with conflicts "
            f"in {', '.join(made.conflicts[:20])}. Resolve them so that both changes keep their "
            "meaning."
        )


def work_folder(data: str, task: str) -> str:
    return os.path.join(data, "git", "work", task)


def _description(workspace: Workspace, note: str) -> str:
    lines = (
        "Your folder is a clone of the repository for this task alone, on branch "
        f"`{workspace.branch}`, which starts at commit {workspace.base[:12]}. Commit your work or "
        "leave it uncommitted: it is collected when you finish. You cannot push."
    )
    return f"{lines} {note}".strip()
