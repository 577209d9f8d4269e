"""Carrying out approved plans, one action after the other, and undoing them.

Before a file is touched, the store says so (`applying`, `undoing`) and knows what the file
is like before and after; so whoever comes after a crash sees how far it got. A file that is
neither as before nor as after was changed by its owner and is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from os import sep
from os.path import dirname
from typing import TYPE_CHECKING, NamedTuple

from hypervisor.batches.plans import action as actions
from hypervisor.batches.plans import plan as planning
from hypervisor.batches.plans.action import DONE, Action, PlanChanged, Standing, Step, wording
from hypervisor.batches.sql import actions as actions_sql
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, WrongState
from hypervisor.core.text import pluralize
from hypervisor.queue.add import with_fresh_ids
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Batch

if TYPE_CHECKING:
    from hypervisor.batches.plans.files import ActionFiles

FILE_CHANGES = (actions.EDIT, actions.WRITE, actions.DELETE)  # these need their original kept
NO_LONGER_PROPOSED = "its task no longer proposes this, or its chunk is not approved any more"
INTERRUPTED = " (done before an interruption)"
NOT_ITS_TURN = "the plan was undone before its turn came"
Tell = Callable[["Outcome"], None]


class Outcome(NamedTuple):
    """What came of one action; `problem` is empty if it was applied or undone."""

    number: int
    task: str
    kind: str
    what: str
    state: str
    problem: str


class Applied(NamedTuple):
    """What `apply` did; `left` actions are approved and still to be done."""

    batch: str
    resumed: int
    applied: int
    failed: tuple[Outcome, ...]
    dropped: tuple[Outcome, ...]
    left: int


class Undone(NamedTuple):
    """What `undo` did, or would do; `refused` was changed since and is left alone."""

    batch: str
    undone: tuple[Outcome, ...]
    refused: tuple[Outcome, ...]
    dropped: int


def apply(
    hv: Context,
    batch: str,
    approved: str | None = None,
    fail_fast: bool = False,
    tell: Tell | None = None,
    now: int | None = None,
) -> Applied:
    """Carry out the plan of a batch whose hash you approve; first what was left of the last one."""
    work = _Work(hv, hv.store.read(queries.batch, validate.text("the batch", batch)), tell, now)
    with work.lock("hv apply"):
        rest = [
            a
            for a in hv.store.read(actions_sql.every, work.batch.id)
            if a.state in actions.UNFINISHED
        ]
        dropped = work.drop_withdrawn(rest)
        gone = {each.number for each in dropped}
        pending = [a for a in rest if a.number not in gone]
        outcomes = work.carry_out(pending, fail_fast)
        if approved is not None and not (fail_fast and any(each.problem for each in outcomes)):
            fresh = _approve(hv, work.batch, approved, now)
            pending = [*pending, *fresh]
            outcomes += work.carry_out(fresh, fail_fast)
    failed = tuple(each for each in outcomes if each.problem)
    return Applied(
        work.batch.name,
        len(rest) - len(dropped),
        len(outcomes) - len(failed),
        failed,
        tuple(dropped),
        len(pending) - len(outcomes),
    )


def undo(
    hv: Context,
    batch: str,
    dry_run: bool = False,
    tell: Tell | None = None,
    now: int | None = None,
) -> Undone:
    """Undo the applied actions of a batch, last one first; files changed since are left alone."""
    work = _Work(hv, hv.store.read(queries.batch, validate.text("the batch", batch)), tell, now)
    if dry_run:
        return work.rehearse()
    with work.lock("hv undo"):
        dropped = work.settle_unfinished()
        rows = hv.store.read(actions_sql.every, work.batch.id)
        todo = [a for a in reversed(rows) if a.state in (actions.APPLIED, actions.UNDOING)]
        if any(a.state == actions.APPLIED for a in todo):
            said = f"undo approved: {pluralize(len(todo), 'action')}"
            hv.store.write(actions_sql.approve, work.batch.id, [], said, hv.actor, hv.at(now))
        folders = {each for a in rows for each in a.data.get("folders", ())}
        outcomes = [work.undo(each, folders) for each in todo]
    return Undone(
        work.batch.name,
        tuple(each for each in outcomes if not each.problem),
        tuple(each for each in outcomes if each.problem),
        dropped,
    )


def _approve(hv: Context, batch: Batch, approved: str, now: int | None) -> list[Action]:
    """Write down what the plan asks for, if it still is the plan that was seen."""
    last = max((action.number for action in hv.store.read(actions_sql.every, batch.id)), default=0)
    plan = planning.plan(hv, batch.id, diffs=False)
    if plan.hash != approved:
        raise PlanChanged(
            "the plan is no longer the one that was shown: files or proposals have changed. "
            "Nothing of it was carried out; look at it again."
        )
    if not plan.to_do:
        return []
    kinds = ", ".join(f"{count} {kind}" for kind, count in plan.kinds.items())
    said = f"plan approved: {pluralize(len(plan.to_do), 'action')} ({kinds}), plan {plan.hash}"
    new = [(each.task, each.kind, each.data) for each in plan.to_do]
    return hv.store.write(actions_sql.approve, batch.id, new, said, hv.actor, hv.at(now), last)


class _Work:
    """One process at work on the plans of one batch."""

    def __init__(self, hv: Context, batch: Batch, tell: Tell | None, now: int | None) -> None:
        self.hv = hv
        self.batch = batch
        self._tell = tell
        self._now = hv.at(now)
        self._roots: dict[str, ActionFiles] = {}

    def lock(self, what: str) -> AbstractContextManager[None]:
        return self._files("").lock(f"{what} of {self.hv.actor}")

    # Applying

    def drop_withdrawn(self, rest: list[Action]) -> list[Outcome]:
        """Approved actions that nobody proposes any more; what has begun is finished."""
        waiting = [a for a in rest if a.state == actions.PLANNED]
        if not waiting:
            return []
        proposed = {
            actions.fingerprint(task, index, proposal)
            for task, _, index, proposal in planning.proposals(self.hv, self.batch)
        }
        return [
            self._end(each, actions.DROPPED, NO_LONGER_PROPOSED, "dropped")
            for each in waiting
            if each.data["print"] not in proposed
        ]

    def carry_out(self, todo: list[Action], fail_fast: bool) -> list[Outcome]:
        outcomes = []
        for each in todo:
            outcomes.append(self._carry_out(each))
            if fail_fast and outcomes[-1].problem:
                break
        return outcomes

    def _carry_out(self, action: Action) -> Outcome:
        try:
            if action.kind == actions.TASK:
                return self._add_task(action)
            step = actions.step_from(action.data)
            files = self._files(action.data["root"])
            found = self._found(files, action, step, action.state == actions.APPLYING)
            if found.how == DONE and action.state == actions.APPLYING:
                return self._applied(action, step, INTERRUPTED)
            if found.how != actions.NOT_YET:
                return self._failed(action, found.found or "somebody has done so already")
            content = _content(files, action, step)
            if action.state == actions.PLANNED:
                action = self._begin(files, action, step)
            files.make_folders(action.data["folders"])
            files.carry_out(step._replace(owner=_owner(action)), _tag(action), content)
        except (InvalidInput, OSError) as error:
            return self._went_wrong(action, str(error).rstrip("."))
        return self._applied(action, step)

    def _went_wrong(self, action: Action, reason: str) -> Outcome:
        """The step may have been made all the same, if its very end did not work."""
        if action.state == actions.APPLYING:
            step = actions.step_from(action.data)
            if self._found(self._files(action.data["root"]), action, step, True).how == DONE:
                return self._applied(action, step)
        return self._failed(action, reason)

    def _begin(self, files: ActionFiles, action: Action, step: Step) -> Action:
        """Keep the original, and say what is about to happen."""
        data = {**action.data, "folders": files.missing_folders(step.to or step.path)}
        if action.kind in FILE_CHANGES:
            data["origin"] = files.origin(step.path)
            files.keep(step.path, step.before)
        return self.hv.store.write(
            actions_sql.move,
            action._replace(data=data),
            actions.APPLYING,
            None,
            "",
            self.hv.actor,
            self._now,
        )

    def _add_task(self, action: Action) -> Outcome:
        fingerprint = f"{action.data['print']} {action.number}"
        new = planning.new_task(self.batch.id, action.task, fingerprint, action.data["proposal"])
        receipt = f"applied #{action.number}: {wording(action.kind, action.data)}"
        done = with_fresh_ids(
            lambda at: self.hv.store.write(
                actions_sql.add_task, action, new, receipt, self.hv.actor, at
            ),
            self._now,
        )
        return self._told(done, "")

    def _applied(self, action: Action, step: Step, how: str = "") -> Outcome:
        text = f"{wording(action.kind, action.data)} ({actions.evidence(step)}){how}"
        return self._end(action, actions.APPLIED, "", "applied", text)

    def _failed(
        self, action: Action, reason: str, state: str = actions.FAILED, verb: str = "not applied"
    ) -> Outcome:
        if action.data.get("folders"):
            self._files(action.data["root"]).remove_folders(action.data["folders"])
        return self._end(action, state, reason, verb)

    # Undoing

    def settle_unfinished(self) -> int:
        """What an application left behind: finished actions count, the others are dropped."""
        dropped = 0
        for each in self.hv.store.read(actions_sql.every, self.batch.id):
            found = Standing(DONE)
            if each.state == actions.APPLYING:
                step = actions.step_from(each.data)
                found = self._found(self._files(each.data["root"]), each, step, True)
                if found.how == DONE:
                    self._applied(each, step, INTERRUPTED)
                elif found.how == actions.NEITHER:
                    self._failed(each, found.found)
            if each.state == actions.PLANNED or found.how == actions.NOT_YET:
                self._failed(each, NOT_ITS_TURN, actions.DROPPED, "dropped")
                dropped += 1
        return dropped

    def undo(self, action: Action, folders: set[str]) -> Outcome:
        """`folders`: all that plans of this batch have made."""
        if action.kind == actions.TASK:
            return self._cancel_task(action)
        step = _back(action)
        files = self._files(action.data["root"])
        try:
            found = self._found(files, action, step, action.state == actions.UNDOING)
            if found.how == actions.NEITHER:
                return self._not_undone(action, found.found)
            if found.how == actions.NOT_YET:
                brings = step.kind in (actions.REPLACE, actions.PLACE)
                content = files.kept(step.after) if brings else b""
                action = self._begin_undo(action)
                files.make_folders(files.missing_folders(step.to or step.path))
                files.carry_out(step, _tag(action), content)
        except (InvalidInput, OSError) as error:
            return self._not_undone(action, str(error).rstrip("."))
        near = (*_above(step.path), *actions.mail_parts(dirname(step.path)))
        files.remove_folders([each for each in dict.fromkeys(near) if each in folders])
        text = f"{wording(action.kind, action.data)} ({actions.evidence(step)})"
        return self._end(action, actions.UNDONE, "", "undone", text)

    def _begin_undo(self, action: Action) -> Action:
        if action.state == actions.UNDOING:
            return action
        return self.hv.store.write(
            actions_sql.move, action, actions.UNDOING, None, "", self.hv.actor, self._now
        )

    def _cancel_task(self, action: Action) -> Outcome:
        receipt = f"undone #{action.number}: {wording(action.kind, action.data)}"
        try:
            done = self.hv.store.write(
                actions_sql.cancel_task, action, receipt, self.hv.actor, self._now
            )
        except WrongState as error:
            return self._not_undone(action, str(error))
        return self._told(done, "")

    def _not_undone(self, action: Action, reason: str) -> Outcome:
        moved = self.hv.store.write(
            actions_sql.move,
            action,
            actions.APPLIED,
            f"not undone: {reason}",
            "",
            self.hv.actor,
            self._now,
        )
        return self._told(moved, reason)

    def rehearse(self) -> Undone:
        """What `undo` would do, without doing it: each step on top of those before it."""
        rows = self.hv.store.read(actions_sql.every, self.batch.id)
        seen: dict[str, str | None] = {}
        outcomes = []
        for each in reversed(rows):
            if each.state in (actions.APPLIED, actions.UNDOING):
                problem = "" if each.kind == actions.TASK else self._rehearsed(each, seen)
                outcomes.append(_outcome(each, problem))
        return Undone(
            self.batch.name,
            tuple(each for each in outcomes if not each.problem),
            tuple(each for each in outcomes if each.problem),
            sum(each.state in actions.UNFINISHED for each in rows),
        )

    def _rehearsed(self, action: Action, seen: dict[str, str | None]) -> str:
        step = _back(action)
        for path in (step.path, step.to):
            if path and path not in seen:
                seen[path] = _hash(self._files(action.data["root"]), path)
        found = actions.standing(step, seen[step.path], seen.get(step.to, ""))
        if found.how == actions.NOT_YET and step.kind == actions.MOVE:
            seen[step.path], seen[step.to] = "", step.before
        elif found.how == actions.NOT_YET:
            seen[step.path] = step.after
        return found.found

    # What both need

    def _files(self, root: str) -> ActionFiles:
        if root not in self._roots:
            self._roots[root] = planning.files_of(self.hv, self.batch, root)
        return self._roots[root]

    def _found(self, files: ActionFiles, action: Action, step: Step, begun: bool) -> Standing:
        if begun:
            files.recover(step, _tag(action))
        return files.look(step)

    def _end(self, action: Action, state: str, problem: str, verb: str, text: str = "") -> Outcome:
        what = text or wording(action.kind, action.data)
        receipt = f"{verb} #{action.number}: {what}" + (f": {problem}" if problem else "")
        moved = self.hv.store.write(
            actions_sql.move, action, state, problem or None, receipt, self.hv.actor, self._now
        )
        return self._told(moved, problem)

    def _told(self, action: Action, problem: str) -> Outcome:
        outcome = _outcome(action, problem)
        if self._tell is not None:
            self._tell(outcome)
        return outcome


def _outcome(action: Action, problem: str) -> Outcome:
    what = wording(action.kind, action.data)
    return Outcome(action.number, action.task, action.kind, what, action.state, problem)


def _back(action: Action) -> Step:
    step = actions.inverse(actions.step_from(action.data))
    mtime = action.data["origin"][0] if "origin" in action.data else None
    return step._replace(mtime=mtime, owner=_owner(action))


def _owner(action: Action) -> tuple[int, int] | None:
    _, user, group = action.data.get("origin", (0, -1, -1))
    return None if user < 0 else (user, group)


def _tag(action: Action) -> str:
    return f"{action.batch}-{action.number}"


def _content(files: ActionFiles, action: Action, step: Step) -> bytes:
    """What the file will hold, which must be what was approved."""
    proposal = action.data["proposal"]
    if action.kind == actions.EDIT:
        content = planning.edited(files.read(step.path), proposal)
    else:
        content = proposal.get("text", "").encode()
    if step.after and planning.content_hash(content) != step.after:
        raise InvalidInput(f"{actions.visible(step.path)} would come out differently now")
    return content


def _hash(files: ActionFiles, path: str) -> str | None:
    try:
        found = files.facts(path)
    except InvalidInput:
        return None
    return found[0] if found else ""


def _above(path: str) -> list[str]:
    parts = path.split(sep)
    return [sep.join(parts[:n]) for n in range(1, len(parts))]
