"""The common part of applying and undoing plans.

Before a file is changed, the store has the state `applying` or `undoing` and the hashes of the file
before and after, so it is clear after a crash how far it got. A file that has neither hash was
changed by its owner and is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from hypervisor.batches.plans import action as actions
from hypervisor.batches.plans import plan as planning
from hypervisor.batches.plans.action import Action, ActionState, Step, StepStatus, wording
from hypervisor.batches.sql import actions as actions_sql
from hypervisor.core import validate
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.changed_items import own_changes
from hypervisor.inputs.item_files import path_of_item
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from hypervisor.batches.plans.files import ActionFiles

INTERRUPTED = " (done before an interruption)"
Tell = Callable[["Outcome"], None]


class Outcome(NamedTuple):
    """The outcome of one action; `problem` is empty if it was applied or undone."""

    number: int
    task: str
    kind: str
    what: str
    state: str
    problem: str


class PlanWork:
    def __init__(self, hv: Context, batch: str, tell: Tell | None, now: int | None) -> None:
        self.hv = hv
        self.batch = hv.store.read(queries.batch, validate.text("the batch", batch))
        self.now = hv.at(now)
        self._tell = tell
        self._roots: dict[str, ActionFiles] = {}

    def lock(self, command: str) -> AbstractContextManager[None]:
        return self.files("").lock(f"{command} of {self.hv.actor}")

    def actions(self) -> list[Action]:
        return self.hv.store.read(actions_sql.every, self.batch.id)

    def files(self, root: str) -> ActionFiles:
        if root not in self._roots:
            self._roots[root] = planning.files_of(self.hv, self.batch, root)
        return self._roots[root]

    def look(self, action: Action, step: Step, begun: bool) -> StepStatus:
        """Whether a step was made; if it was `begun`, cleans up after a crash first."""
        files = self.files(action.data["root"])
        if begun:
            files.recover(step, tag(action))
        return files.look(step)

    def own_change(self, action: Action) -> AbstractContextManager[None]:
        """A plan's change to the item's file does not count as a change by its owner."""
        spec = self.batch.spec if isinstance(self.batch.spec, dict) else {}
        (task,) = self.hv.store.read(queries.tasks, [action.task])
        path = path_of_item(task.data, str(spec.get("cwd", "")))
        return own_changes(self.hv.store, {} if path is None else {task.id: path})

    def move(
        self, action: Action, state: ActionState, reason: str = "", receipt: str = ""
    ) -> Action:
        return self.hv.store.write(
            actions_sql.move,
            action,
            state,
            reason=reason or None,
            receipt=receipt,
            actor=self.hv.actor,
            now=self.now,
        )

    def approve(
        self, new: Sequence[tuple[str, str, dict[str, Any]]], text: str, after: int | None = None
    ) -> list[Action]:
        """Store actions, each (task, kind, data), together with their approval."""
        return self.hv.store.write(
            actions_sql.approve,
            self.batch.id,
            new,
            text,
            actor=self.hv.actor,
            now=self.now,
            after=after,
        )

    def applied(self, action: Action, step: Step, suffix: str = "") -> Outcome:
        text = f"{wording(action.kind, action.data)} ({actions.evidence(step)}){suffix}"
        return self.end(action, actions.APPLIED, verb="applied", text=text)

    def failed(self, action: Action, reason: str) -> Outcome:
        return self._give_up(action, actions.FAILED, reason, "not applied")

    def dropped(self, action: Action, reason: str) -> Outcome:
        return self._give_up(action, actions.DROPPED, reason, "dropped")

    def _give_up(self, action: Action, state: ActionState, reason: str, verb: str) -> Outcome:
        if action.data.get("folders"):
            self.files(action.data["root"]).remove_folders(action.data["folders"])
        return self.end(action, state, reason, verb=verb)

    def end(
        self, action: Action, state: ActionState, problem: str = "", *, verb: str, text: str = ""
    ) -> Outcome:
        """Record the outcome of an action, with its receipt."""
        description = text or wording(action.kind, action.data)
        receipt = f"{verb} #{action.number}: {description}" + (f": {problem}" if problem else "")
        return self.report(self.move(action, state, problem, receipt), problem)

    def report(self, action: Action, problem: str = "") -> Outcome:
        outcome = outcome_of(action, problem)
        if self._tell is not None:
            self._tell(outcome)
        return outcome


def outcome_of(action: Action, problem: str) -> Outcome:
    description = wording(action.kind, action.data)
    return Outcome(action.number, action.task, action.kind, description, action.state, problem)


def owner_of(action: Action) -> tuple[int, int] | None:
    """The user and group of the original."""
    _, user, group = action.data.get("origin", (0, -1, -1))
    return None if user < 0 else (user, group)


def tag(action: Action) -> str:
    return f"{action.batch}-{action.number}"
