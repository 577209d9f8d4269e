"""Where attempts work if not in the project itself: the interface of workspaces for workers.

There are two kinds: scratch copies (scratch.py), and clones of a git repository (git/). The order
of calls for an attempt is open, look periodically, and closed or stopped once none of its
processes is left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.store_path import FOLDER

if TYPE_CHECKING:
    from hypervisor.inputs.template import Item
    from hypervisor.queue.lease import AttemptResult, Lease
    from hypervisor.queue.stop import Stop
    from hypervisor.queue.task import Task
    from hypervisor.runs.worker import WorkerContext


class Opened(NamedTuple):
    """The folder of an attempt, variables for its environment, and what an agent is told about
    it. `copy` is a copy of `original`, in which paths of items may lie. `sparse`: the only folders
    in it; none: all of them."""

    folder: str
    env: Mapping[str, str] = {}
    note: str = ""
    original: str = ""
    copy: str = ""
    sparse: tuple[str, ...] = ()

    def item_here(self, item: Item, cwd: str) -> Item:
        """The item with its path in the copy, if it names a file of the original. InvalidInput:
        the copy does not have that file."""
        path = path_in(self.original, cwd, item.text) if self.copy else ""
        if not path:
            return item
        here = os.path.join(self.copy, path)
        if os.path.lexists(os.path.join(self.original, path)) and not os.path.lexists(here):
            raise InvalidInput(f"{item.text} is not in the clone{self._why_not()}")
        return item._replace(text=here) if os.path.isabs(item.text) else item

    def _why_not(self) -> str:
        if self.sparse:
            folders = " ".join(f"--sparse {folder}" for folder in self.sparse)
            return f": it is outside of {folders}, or not committed"
        return (
            ", because it is not committed; commit it, or use --include-dirty or "
            "--workspace project"
        )


def path_in(root: str, cwd: str, text: str) -> str:
    """The path of an item below a folder; "" if it is not there, or belongs to the store."""
    path = os.path.normpath(os.path.join(cwd, text))
    if not path.startswith(root + os.sep) or "\0" in path:
        return ""
    below = path.removeprefix(root + os.sep)
    return "" if below.split(os.sep)[0] == FOLDER else below


class Returned(NamedTuple):
    """Why finished work came back. `same_author`: the agent that did it continues its session."""

    reason: str
    same_author: bool


class NotSetUp(Exception):
    """The workspace could not be set up, which is not the task's fault."""


class StoppedEarly(Exception):
    """The attempt must end while its workspace is still being set up."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.reason)
        self.stop = stop


class Workspaces(Protocol):
    def returned(self, task: Task) -> Returned | None:
        """Why the work of the last attempt could not be merged; None if this is not about that."""
        ...

    def open(self, lease: Lease, continues: bool) -> Opened:
        """The workspace of an attempt. `continues`: with what the last attempt left in it.
        WorkspaceError, InvalidInput: there is none; the project itself is never used instead.
        NotSetUp, StoppedEarly: see there."""
        ...

    def look(self, lease: Lease, now: float) -> None:
        """Save what has changed, if it is time."""
        ...

    def stopped(self, lease: Lease, stop: Stop) -> None:
        """The attempt was stopped: save what it did."""
        ...

    def closed(self, lease: Lease) -> None:
        """The attempt has ended by itself: save what it did."""
        ...

    def forget(self, task: str) -> None:
        """The task has ended: its workspace is no longer needed."""
        ...


def forgetting(workspaces: Workspaces | None) -> Callable[[list[AttemptResult]], None]:
    """Called with results once they are stored."""

    def forget(results: list[AttemptResult]) -> None:
        for result in results:
            if workspaces is not None and result.event in ("complete", "fail"):
                workspaces.forget(result.token.task)

    return forget


def workspaces_for(ctx: WorkerContext) -> Workspaces | None:
    """Those that the batch asks for; None: its attempts work in the project."""
    if ctx.spec.workspace in ("", "project"):  # "": stored by an earlier version
        return None
    made: Workspaces = ctx.hv.make_workspaces(ctx)
    return made
