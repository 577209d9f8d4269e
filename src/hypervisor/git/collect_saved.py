"""The finished work of an attempt whose workspace is gone: from what was saved of it in the hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypervisor.core.errors import WorkspaceError
from hypervisor.git.collect import Collected, message_of, on_base, own_trailers, task_ref
from hypervisor.git.snapshot import latest
from hypervisor.git.work_tree import LeftOut

if TYPE_CHECKING:
    from hypervisor.git.hub import Hub
    from hypervisor.queue.task import Task


def collect_saved(hub: Hub, task: Task, attempt: int, bases: Sequence[str]) -> Collected:
    """Its collected commits, or else the last snapshot, as a commit. `bases`: see `collect`."""
    ref = task_ref(task.id, attempt)
    head = hub.git.commit_of(ref)
    left_out: tuple[LeftOut, ...] = ()
    text = message_of(task.title, own_trailers(task.id, attempt))
    if head is None:
        last = latest(hub, task.id, attempt)
        if last is None:
            raise WorkspaceError(f"attempt {attempt} had no workspace, so there are no commits")
        is_dirty = last.tree != hub.tree_of(last.head)
        head = hub.commit(last.tree, [last.head], text) if is_dirty else last.head
        left_out = last.left_out
        hub.update_ref(ref, head)
    head, base, notes = on_base(hub, bases, head, text)
    paths = hub.git.names("diff", "--name-only", "-z", "--no-renames", base, head)
    unchanged = hub.tree_of(head) == hub.tree_of(base)
    return Collected(head, base, tuple(paths), unchanged, tuple(notes), left_out)
