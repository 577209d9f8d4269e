"""Review: the chunks that wait for a decision, and one chunk with what is decided about."""

from __future__ import annotations

import json

from hypervisor.batches import review as reviews
from hypervisor.batches.plans.apply import apply
from hypervisor.batches.plans.plan import plan
from hypervisor.core.errors import HypervisorError, InvalidInput
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.queries import list_tasks
from hypervisor.web.dashboard.diffs import files_of
from hypervisor.web.dashboard.page import Action, Page, Request, Values

MAX_TASKS = 50
MAX_ACTIONS = 200


def waiting(hv: Context, request: Request) -> Values:
    return {
        "checkpoints": reviews.awaiting(hv),
        "tasks": list_tasks(hv, ("review",), limit=MAX_TASKS),
    }


def chunk_values(hv: Context, request: Request) -> Values:
    shown = reviews.review(hv, request.path["batch"], request.number("chunk"), request.now)
    return {"shown": shown, "chunk": shown.chunk, "batch_id": shown.chunk.batch}


def results(hv: Context, request: Request) -> Values:
    """Every item on demand, a page at a time."""
    if request.query.get("all") != "1":
        return {"results": None}
    found = list_tasks(hv, (), request.path["batch"], limit=1_000)
    rows = [(task, _text(task.result)) for task in found]
    return {"results": rows[:MAX_TASKS], "more": len(rows) - MAX_TASKS}


def _text(result: object) -> str:
    return json.dumps(result, ensure_ascii=False)[:2_000] if result is not None else ""


def proposed(hv: Context, request: Request) -> Values:
    """The changes that the results propose, with their diffs."""
    try:
        found = plan(hv, request.path["batch"])
    except HypervisorError as error:
        return {"plan": None, "problem": str(error), "actions": []}
    wanted = request.query.get("file", "")
    actions = [(action, files_of(action.diff, wanted)) for action in found.to_do[:MAX_ACTIONS]]
    return {"plan": found, "problem": "", "actions": actions}


# Actions


def approve(hv: Context, request: Request) -> str:
    return _decide(hv, request, "approved")


def reject(hv: Context, request: Request) -> str:
    return _decide(hv, request, "rejected")


def _decide(hv: Context, request: Request, decision: reviews.Decision) -> str:
    shown = request.form.get("shown", "")
    if not shown:
        raise InvalidInput("the decision does not say what was shown; nothing was decided")
    decided = reviews.decide(
        hv,
        request.path["batch"],
        decision,
        request.number("chunk"),
        request.form.get("note", ""),
        rest=request.form.get("rest") == "1",
        shown=shown,
    )
    opened = f"; {pluralize(len(decided.opened), 'chunk')} released" if decided.opened else ""
    return f"chunk {decided.chunk} of {decided.batch} is {decided.decision}{opened}"


def retry(hv: Context, request: Request) -> str:
    note, number = request.form.get("note", ""), request.number("chunk")
    decided = reviews.retry_chunk(hv, request.path["batch"], note, number)
    return f"{pluralize(decided.tasks, 'task')} of chunk {decided.chunk} put back into the queue"


def carry_out(hv: Context, request: Request) -> str:
    applied = apply(hv, request.path["batch"], request.form.get("hash", ""))
    failed = f", {len(applied.failed)} failed" if applied.failed else ""
    return f"{pluralize(applied.applied, 'change')} applied{failed}"


PAGES = (
    Page("/review", "reviews", parts={"waiting": waiting}),
    Page(
        "/review/{batch}/{chunk}",
        "review",
        chunk_values,
        parts={"summary": lambda hv, request: {}, "proposed": proposed, "results": results},
    ),
)
ACTIONS = (
    Action("/review/{batch}/{chunk}/approve", approve),
    Action("/review/{batch}/{chunk}/reject", reject),
    Action("/review/{batch}/{chunk}/retry", retry),
    Action("/review/{batch}/{chunk}/apply", carry_out),
)
