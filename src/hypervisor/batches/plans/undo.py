"""Undoing applied actions, the last one first."""

from __future__ import annotations

from os import sep
from os.path import dirname
from typing import TYPE_CHECKING

from hypervisor.batches.plans import action as actions
from hypervisor.batches.plans.action import DONE, Action, Step, StepStatus, wording
from hypervisor.batches.plans.work import (
    INTERRUPTED,
    Outcome,
    PlanWork,
    Tell,
    outcome_of,
    owner_of,
    tag,
)
from hypervisor.batches.sql import actions as actions_sql
from hypervisor.core.errors import InvalidInput, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context

if TYPE_CHECKING:
    from hypervisor.batches.plans.files import ActionFiles

APPLIED = (actions.APPLIED, actions.UNDOING)
UNDONE_BEFORE = "the plan was undone before this action was applied"


class Undone(NamedTuple):
    """What `undo` did, or would do; `refused` was changed since and is left alone."""

    batch: str
    undone: tuple[Outcome, ...]
    refused: tuple[Outcome, ...]
    dropped: int


def undo(
    hv: Context,
    batch: str,
    dry_run: bool = False,
    tell: Tell | None = None,
    now: int | None = None,
) -> Undone:
    """Undo the applied actions of a batch, latest first; files changed since are left alone."""
    work = PlanWork(hv, batch, tell, now)
    if dry_run:
        every = work.actions()
        dropped = sum(action.state in actions.UNFINISHED for action in every)
        return _undone(work, _rehearse(work, every), dropped)
    with work.lock("hv undo"):
        dropped = _settle_unfinished(work)
        every = work.actions()
        todo = [action for action in reversed(every) if action.state in APPLIED]
        if any(action.state == actions.APPLIED for action in todo):
            work.approve([], f"undo approved: {pluralize(len(todo), 'action')}")
        folders = {folder for action in every for folder in action.data.get("folders", ())}
        outcomes = [_undo(work, action, folders) for action in todo]
    return _undone(work, outcomes, dropped)


def _undone(work: PlanWork, outcomes: list[Outcome], dropped: int) -> Undone:
    return Undone(
        work.batch.name,
        tuple(outcome for outcome in outcomes if not outcome.problem),
        tuple(outcome for outcome in outcomes if outcome.problem),
        dropped,
    )


def _settle_unfinished(work: PlanWork) -> int:
    """Settle actions of an interrupted `apply`: finished ones count, the others are dropped."""
    dropped = 0
    for action in work.actions():
        status = StepStatus(DONE)
        if action.state == actions.APPLYING:
            step = actions.step_from(action.data)
            status = work.look(action, step, begun=True)
            if status.how == DONE:
                work.applied(action, step, INTERRUPTED)
            elif status.how == actions.NEITHER:
                work.failed(action, status.problem)
        if action.state == actions.PLANNED or status.how == actions.NOT_YET:
            work.dropped(action, UNDONE_BEFORE)
            dropped += 1
    return dropped


def _undo(work: PlanWork, action: Action, folders: set[str]) -> Outcome:
    """`folders`: all folders that plans of this batch have created."""
    if action.kind == actions.TASK:
        return _cancel_task(work, action)
    step = _reverse_step(action)
    files = work.files(action.data["root"])
    try:
        status = work.look(action, step, action.state == actions.UNDOING)
        if status.how == actions.NEITHER:
            return _not_undone(work, action, status.problem)
        if status.how == actions.NOT_YET:
            restores = step.kind in (actions.REPLACE, actions.PLACE)
            content = files.kept(step.after) if restores else b""
            if action.state != actions.UNDOING:
                action = work.move(action, actions.UNDOING)
            files.make_folders(files.missing_folders(step.to or step.path))
            with work.own_change(action):
                files.carry_out(step, tag(action), content)
    except (InvalidInput, OSError) as error:
        return _not_undone(work, action, str(error).rstrip("."))
    parents = (*_folders_above(step.path), *actions.mail_parts(dirname(step.path)))
    files.remove_folders([folder for folder in dict.fromkeys(parents) if folder in folders])
    text = f"{wording(action.kind, action.data)} ({actions.evidence(step)})"
    return work.end(action, actions.UNDONE, verb="undone", text=text)


def _cancel_task(work: PlanWork, action: Action) -> Outcome:
    receipt = f"undone #{action.number}: {wording(action.kind, action.data)}"
    try:
        undone = work.hv.store.write(
            actions_sql.cancel_task, action, receipt, work.hv.actor, work.now
        )
    except WrongState as error:
        return _not_undone(work, action, str(error))
    return work.report(undone)


def _not_undone(work: PlanWork, action: Action, reason: str) -> Outcome:
    return work.report(work.move(action, actions.APPLIED, f"not undone: {reason}"), reason)


def _rehearse(work: PlanWork, every: list[Action]) -> list[Outcome]:
    """What `undo` would do: each step on top of the previous ones."""
    hashes: dict[str, str | None] = {}
    outcomes = []
    for action in reversed(every):
        if action.state in APPLIED:
            problem = ""
            if action.kind != actions.TASK:
                files = work.files(action.data["root"])
                problem = _rehearse_step(files, _reverse_step(action), hashes)
            outcomes.append(outcome_of(action, problem))
    return outcomes


def _rehearse_step(files: ActionFiles, step: Step, hashes: dict[str, str | None]) -> str:
    """Why a step cannot be made. `hashes`: the contents after the previous steps."""
    for path in (step.path, step.to):
        if path and path not in hashes:
            hashes[path] = _hash(files, path)
    status = actions.status_of_step(step, hashes[step.path], hashes.get(step.to, ""))
    if status.how == actions.NOT_YET and step.kind == actions.StepKind.MOVE:
        hashes[step.path], hashes[step.to] = "", step.before
    elif status.how == actions.NOT_YET:
        hashes[step.path] = step.after
    return status.problem


def _reverse_step(action: Action) -> Step:
    step = actions.inverse(actions.step_from(action.data))
    mtime = action.data["origin"][0] if "origin" in action.data else None
    return step._replace(mtime=mtime, owner=owner_of(action))


def _hash(files: ActionFiles, path: str) -> str | None:
    try:
        facts = files.facts(path)
    except InvalidInput:
        return None
    return facts[0] if facts else ""


def _folders_above(path: str) -> list[str]:
    parts = path.split(sep)
    return [sep.join(parts[:n]) for n in range(1, len(parts))]
