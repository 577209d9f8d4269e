"""One process at work on the plans of a batch: what applying and undoing have in common.

Before a file is touched, the store says so (`applying`, `undoing`) and knows what the file
is like before and after; so after a crash anyone can see how far it got. A file that is
neither as before nor as after was changed by its owner and is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from hypervisor.batches.plans import action as actions
from hypervisor.batches.plans import plan as planning
from hypervisor.batches.plans.action import Action, ActionState, Standing, Step, wording
from hypervisor.batches.sql import actions as actions_sql
from hypervisor.core import validate
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries

if TYPE_CHECKING:
    from hypervisor.batches.plans.files import ActionFiles

INTERRUPTED = " (done before an interruption)"
Tell = Callable[["Outcome"], None]


class Outcome(NamedTuple):
    """What came of one action; `problem` is empty if it was applied or undone."""

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

    def look(self, action: Action, step: Step, begun: bool) -> Standing:
        """Whether a step was made; if it was `begun`, what a crash left is cleared up first."""
        files = self.files(action.data["root"])
        if begun:
            files.recover(step, tag(action))
        return files.look(step)

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
        """Write down actions, each (task, kind, data), together with their approval."""
        return self.hv.store.write(
            actions_sql.approve,
            self.batch.id,
            new,
            text,
            actor=self.hv.actor,
            now=self.now,
            after=after,
        )

    def applied(self, action: Action, step: Step, how: str = "") -> Outcome:
        text = f"{wording(action.kind, action.data)} ({actions.evidence(step)}){how}"
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
        """Write down what came of an action, with its receipt."""
        what = text or wording(action.kind, action.data)
        receipt = f"{verb} #{action.number}: {what}" + (f": {problem}" if problem else "")
        return self.report(self.move(action, state, problem, receipt), problem)

    def report(self, action: Action, problem: str = "") -> Outcome:
        outcome = outcome_of(action, problem)
        if self._tell is not None:
            self._tell(outcome)
        return outcome


def outcome_of(action: Action, problem: str) -> Outcome:
    what = wording(action.kind, action.data)
    return Outcome(action.number, action.task, action.kind, what, action.state, problem)


def owner_of(action: Action) -> tuple[int, int] | None:
    """Whose the original was, user and group."""
    _, user, group = action.data.get("origin", (0, -1, -1))
    return None if user < 0 else (user, group)


def tag(action: Action) -> str:
    return f"{action.batch}-{action.number}"
