"""Review: one chunk with what is decided about: its summary, its changes and its items."""

from __future__ import annotations

import json

from hypervisor.batches import review as reviews
from hypervisor.batches.plans.action import TASK
from hypervisor.batches.plans.apply import apply
from hypervisor.batches.plans.plan import Plan, PlannedAction, plan
from hypervisor.batches.review_items import review_items
from hypervisor.core.errors import HypervisorError, InvalidInput, NotFound, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.queries import batch_names
from hypervisor.web.dashboard.diffs import DiffLine, lines_of, shown_at_once
from hypervisor.web.dashboard.page import Action, Page, Request, Values

CHANGES_AT_ONCE = 50
ITEMS_AT_ONCE = 50
MAX_RESULT = 4_000  # characters shown of a result in a list
DECIDED = ("approved", "free")  # their changes can be applied


class Change(NamedTuple):
    """A change of a plan. Without `lines`, they are sent when asked for, if it has a diff."""

    number: int
    id: str
    action: PlannedAction
    lines: tuple[DiffLine, ...]
    left_out: int
    note: str  # the size of a file without a diff, or the text of a task


def chunk_values(hv: Context, request: Request) -> Values:
    number = request.number("chunk")
    for chunk in (found := reviews.chunks(hv, request.path["batch"])):
        if chunk.number == number:
            name = batch_names(hv, [chunk.batch])[chunk.batch]
            return {"chunk": chunk, "chunks": found, "batch_id": chunk.batch, "batch": name}
    raise NotFound(f"this batch has no chunk {number}")


def summary(hv: Context, request: Request) -> Values:
    shown = reviews.review(hv, request.path["batch"], request.number("chunk"), request.now)
    return {"shown": shown, "chunk": shown.chunk}


# The changes


def proposed(hv: Context, request: Request) -> Values:
    """What the chunk would change; once it is approved, what its batch is going to change."""
    first = request.number("from")
    try:
        found = _plan(hv, request, range(first, first + CHANGES_AT_ONCE))
    except HypervisorError as error:
        return {"plan": None, "problem": str(error), "changes": [], "first": 0}
    return {
        "plan": found,
        "problem": "",
        "changes": _changes(found, first),
        "first": first,
        "at_once": CHANGES_AT_ONCE,
    }


def _plan(hv: Context, request: Request, diffs: range) -> Plan:
    chunk = next(
        chunk
        for chunk in reviews.chunks(hv, request.path["batch"])
        if chunk.number == request.number("chunk")
    )
    if chunk.state in DECIDED:
        return plan(hv, request.path["batch"], diffs)
    return plan(hv, request.path["batch"], diffs, chunk=chunk.number)


def _changes(found: Plan, first: int) -> list[Change]:
    actions = found.to_do[first : first + CHANGES_AT_ONCE]
    at_once = shown_at_once((path_of(a), a.added, a.removed) for a in actions)
    return [
        change_of(number, action, is_shown)
        for number, action, is_shown in zip(
            range(first, first + len(actions)), actions, at_once, strict=True
        )
    ]


def change_of(number: int, action: PlannedAction, is_shown: bool) -> Change:
    has_diff = action.added is not None
    lines, left_out = lines_of(action.diff) if has_diff and is_shown else ((), 0)
    id = action.data["print"][:12]
    return Change(number, id, action, lines, left_out, "" if has_diff else action.diff)


def path_of(action: PlannedAction) -> str:
    return "" if action.kind == TASK else str(action.data["step"]["path"])


def change(hv: Context, request: Request) -> Values:
    """The lines of one change of the plan that the page shows."""
    number = request.number("change")
    found = _plan(hv, request, range(number, number + 1))
    if found.hash != request.query.get("plan") or number >= len(found.to_do):
        raise WrongState("the plan has changed since it was shown; reload the page")
    return {"change": change_of(number, found.to_do[number], True)}


# The items


def items(hv: Context, request: Request) -> Values:
    """Every item on demand, a page at a time."""
    query = request.query
    wanted = {name: query.get(name, "") for name in ("category", "state", "after")}
    if not query.get("items") and not any(wanted.values()):
        return {"page_of_items": None}
    batch, chunk = request.path["batch"], request.number("chunk")
    found = review_items(hv, batch, chunk, **wanted, limit=ITEMS_AT_ONCE)
    texts = [result_text(item.result)[:MAX_RESULT] for item in found.items]
    return {"page_of_items": found, "texts": texts, "wanted": wanted}


def result_text(result: object) -> str:
    return json.dumps(result, ensure_ascii=False, indent=2) if result is not None else ""


# Actions


def approve(hv: Context, request: Request) -> str:
    return _decide(hv, request, "approved")


def reject(hv: Context, request: Request) -> str:
    return _decide(hv, request, "rejected")


def _decide(hv: Context, request: Request, decision: reviews.Decision) -> str:
    decided = reviews.decide(
        hv,
        request.path["batch"],
        decision,
        request.number("chunk"),
        request.form.get("note", ""),
        rest=request.form.get("rest") == "1",
        shown=what_was_shown(request),
        planned=request.form.get("planned", ""),
    )
    opened = f"; {pluralize(len(decided.opened), 'chunk')} released" if decided.opened else ""
    return f"chunk {decided.chunk} of {decided.batch} is {decided.decision}{opened}"


def what_was_shown(request: Request) -> str:
    shown = request.form.get("shown", "")
    if not shown:
        raise InvalidInput("the decision does not say what was shown; nothing was decided")
    return shown


def retry(hv: Context, request: Request) -> str:
    note, number = request.form.get("note", ""), request.number("chunk")
    shown = what_was_shown(request)
    decided = reviews.retry_chunk(hv, request.path["batch"], note, number, shown=shown)
    kept = f"; {pluralize(decided.kept, 'corrected result')} kept" if decided.kept else ""
    tasks = pluralize(decided.tasks, "task")
    return f"{tasks} of chunk {decided.chunk} put back into the queue{kept}"


def carry_out(hv: Context, request: Request) -> str:
    applied = apply(hv, request.path["batch"], request.form.get("hash", ""))
    failed = f", {len(applied.failed)} failed" if applied.failed else ""
    return f"{pluralize(applied.applied, 'change')} applied{failed}"


PAGES = (
    Page(
        "/review/{batch}/{chunk}",
        "review",
        chunk_values,
        parts={"summary": summary, "proposed": proposed, "change": change, "items": items},
    ),
)
ACTIONS = (
    Action("/review/{batch}/{chunk}/approve", approve),
    Action("/review/{batch}/{chunk}/reject", reject),
    Action("/review/{batch}/{chunk}/retry", retry),
    Action("/review/{batch}/{chunk}/apply", carry_out),
)
