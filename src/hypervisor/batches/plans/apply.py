"""Applying approved plans, action by action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.batches.plans import action as actions
from hypervisor.batches.plans import plan as planning
from hypervisor.batches.plans.action import DONE, Action, PlanChanged, Step, wording
from hypervisor.batches.plans.work import (
    INTERRUPTED,
    Outcome,
    PlanWork,
    Tell,
    owner_of,
    tag,
)
from hypervisor.batches.sql import actions as actions_sql
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.queue.add import with_fresh_ids
from hypervisor.queue.context import Context

if TYPE_CHECKING:
    from hypervisor.batches.plans.files import ActionFiles

FILE_CHANGES = (actions.EDIT, actions.WRITE, actions.DELETE)  # for these, the original is kept
NO_LONGER_PROPOSED = "its task no longer proposes this, or its chunk is no longer approved"


class Applied(NamedTuple):
    """What `apply` did; `left` actions are approved and still to be done."""

    batch: str
    resumed: int
    applied: int
    failed: tuple[Outcome, ...]
    dropped: tuple[Outcome, ...]
    left: int


def apply(
    hv: Context,
    batch: str,
    approved: str | None = None,
    fail_fast: bool = False,
    *,
    tell: Tell | None = None,
    now: int | None = None,
) -> Applied:
    """Apply the plan of a batch with the hash you approve, after any unfinished earlier plan."""
    work = PlanWork(hv, batch, tell, now)
    with work.lock("hv apply"):
        remaining = [action for action in work.actions() if action.state in actions.UNFINISHED]
        dropped = _drop_withdrawn(work, remaining)
        withdrawn = {outcome.number for outcome in dropped}
        pending = [action for action in remaining if action.number not in withdrawn]
        outcomes = _carry_out_all(work, pending, fail_fast)
        if approved is not None and not (fail_fast and any(o.problem for o in outcomes)):
            fresh = _approve(work, approved)
            pending = [*pending, *fresh]
            outcomes += _carry_out_all(work, fresh, fail_fast)
    failed = tuple(outcome for outcome in outcomes if outcome.problem)
    return Applied(
        work.batch.name,
        resumed=len(remaining) - len(dropped),
        applied=len(outcomes) - len(failed),
        failed=failed,
        dropped=tuple(dropped),
        left=len(pending) - len(outcomes),
    )


def _approve(work: PlanWork, approved: str) -> list[Action]:
    """Store the actions of the plan, if it is still the plan that was approved."""
    last = max((action.number for action in work.actions()), default=0)
    plan = planning.plan(work.hv, work.batch.id, diffs=False)
    if plan.hash != approved:
        raise PlanChanged(
            "the plan has changed since it was shown: files or proposals have changed. Nothing "
            "was applied; review it again."
        )
    if not plan.to_do:
        return []
    kinds = ", ".join(f"{count} {kind}" for kind, count in plan.kinds.items())
    text = f"plan approved: {pluralize(len(plan.to_do), 'action')} ({kinds}), plan {plan.hash}"
    new = [(action.task, action.kind, action.data) for action in plan.to_do]
    return work.approve(new, text, after=last)


def _drop_withdrawn(work: PlanWork, unfinished: list[Action]) -> list[Outcome]:
    """Drop approved actions that are no longer proposed; started actions are finished."""
    planned = [action for action in unfinished if action.state == actions.PLANNED]
    if not planned:
        return []
    proposed = {
        actions.fingerprint(proposed.task, proposed.place, proposed.proposal)
        for proposed in planning.proposals(work.hv, work.batch)
    }
    withdrawn = [action for action in planned if action.data["print"] not in proposed]
    return [
        work.end(action, actions.DROPPED, NO_LONGER_PROPOSED, verb="dropped")
        for action in withdrawn
    ]


def _carry_out_all(work: PlanWork, todo: list[Action], fail_fast: bool) -> list[Outcome]:
    outcomes = []
    for action in todo:
        outcomes.append(_carry_out(work, action))
        if fail_fast and outcomes[-1].problem:
            break
    return outcomes


def _carry_out(work: PlanWork, action: Action) -> Outcome:
    try:
        if action.kind == actions.TASK:
            return _add_task(work, action)
        step = actions.step_from(action.data)
        files = work.files(action.data["root"])
        begun = action.state == actions.APPLYING
        status = work.look(action, step, begun)
        if status.how == DONE and begun:
            return work.applied(action, step, INTERRUPTED)
        if status.how != actions.NOT_YET:
            return work.failed(action, status.problem or "it was already done")
        content = _content(files, action, step)
        if not begun:
            action = _begin(work, files, action, step)
        files.make_folders(action.data["folders"])
        with work.own_change(action):
            files.carry_out(step._replace(owner=owner_of(action)), tag(action), content)
    except (InvalidInput, OSError) as error:
        return _went_wrong(work, action, str(error).rstrip("."))
    return work.applied(action, step)


def _went_wrong(work: PlanWork, action: Action, reason: str) -> Outcome:
    """The step may have been made even though its last part failed."""
    if action.state == actions.APPLYING:
        step = actions.step_from(action.data)
        if work.look(action, step, begun=True).how == DONE:
            return work.applied(action, step)
    return work.failed(action, reason)


def _begin(work: PlanWork, files: ActionFiles, action: Action, step: Step) -> Action:
    """Keep the original, and store that the action has started."""
    data = {**action.data, "folders": files.missing_folders(step.to or step.path)}
    if action.kind in FILE_CHANGES:
        data["origin"] = files.origin(step.path)
        files.keep(step.path, step.before)
    return work.move(action._replace(data=data), actions.APPLYING)


def _add_task(work: PlanWork, action: Action) -> Outcome:
    fingerprint = f"{action.data['print']} {action.number}"
    new = planning.new_task(work.batch.id, action.task, fingerprint, action.data["proposal"])
    receipt = f"applied #{action.number}: {wording(action.kind, action.data)}"

    def add(now: int) -> Action:
        return work.hv.store.write(
            actions_sql.add_task, action, new, receipt, actor=work.hv.actor, now=now
        )

    return work.report(with_fresh_ids(add, work.now))


def _content(files: ActionFiles, action: Action, step: Step) -> bytes:
    """The new content of the file, which must be what was approved."""
    proposal = action.data["proposal"]
    if action.kind == actions.EDIT:
        content = planning.edited(files.read(step.path), proposal)
    else:
        content = proposal.get("text", "").encode()
    if step.after and planning.content_hash(content) != step.after:
        raise InvalidInput(f"{actions.visible(step.path)} would now get different content")
    return content
