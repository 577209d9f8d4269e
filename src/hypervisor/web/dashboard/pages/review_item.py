"""One item of a chunk: its result, what it would change, and correcting both."""

from __future__ import annotations

from hypervisor.batches import review as reviews
from hypervisor.batches.plans.plan import plan
from hypervisor.batches.review_items import ReviewItem, review_items
from hypervisor.core.errors import HypervisorError
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.queue.result import NO_CATEGORY
from hypervisor.web.dashboard.correction import changes_in, fields_of
from hypervisor.web.dashboard.diffs import shown_at_once
from hypervisor.web.dashboard.page import Action, Page, Request, Values
from hypervisor.web.dashboard.pages.review import (
    CHANGES_AT_ONCE,
    change_of,
    chunk_values,
    path_of,
    result_text,
    what_was_shown,
)

MAX_RESULT = 20_000  # characters


def item_values(hv: Context, request: Request) -> Values:
    return {**chunk_values(hv, request), "item": _item(hv, request)}


def head(hv: Context, request: Request) -> Values:
    item = _item(hv, request)
    batch, chunk = request.path["batch"], request.number("chunk")
    following = review_items(hv, batch, chunk, after=item.task, limit=1).items
    return {
        "text": result_text(item.result)[:MAX_RESULT],
        "following": following[0].task if following else "",
    }


def edit(hv: Context, request: Request) -> Values:
    """The form. It is not refreshed by events: what a person types stays."""
    item = _item(hv, request)
    shown = reviews.review(hv, request.path["batch"], request.number("chunk"), request.now)
    known = [name for name in shown.categories if name != NO_CATEGORY]
    return {"form": fields_of(item.result), "known": known}


def changes(hv: Context, request: Request) -> Values:
    task, chunk = _item(hv, request).task, request.number("chunk")
    try:
        found = plan(hv, request.path["batch"], range(CHANGES_AT_ONCE), chunk=chunk, task=task)
    except HypervisorError as error:
        return {"plan": None, "problem": str(error), "changes": []}
    actions = found.to_do[:CHANGES_AT_ONCE]
    at_once = shown_at_once((path_of(a), a.added, a.removed) for a in actions)
    changes = [
        change_of(number, action, is_shown)
        for number, (action, is_shown) in enumerate(zip(actions, at_once, strict=True))
    ]
    return {"plan": found, "problem": "", "changes": changes}


def change(hv: Context, request: Request) -> Values:
    """The lines of a long change."""
    number = request.number("change")
    task, chunk = _item(hv, request).task, request.number("chunk")
    diffs = range(number, number + 1)
    found = plan(hv, request.path["batch"], diffs, chunk=chunk, task=task)
    return {"change": change_of(number, found.to_do[number], True)}


def _item(hv: Context, request: Request) -> ReviewItem:
    path = request.path
    return review_items(hv, path["batch"], request.number("chunk"), task=path["task"]).items[0]


# Actions


def correct(hv: Context, request: Request) -> str:
    item = _item(hv, request)
    shown = what_was_shown(request)
    changes = changes_in(item.result, request.form)
    reviews.amend(hv, item.task, changes, shown=shown)
    return f"{pluralize(len(changes), 'field')} of {item.task} corrected"


def retry(hv: Context, request: Request) -> str:
    note, number = request.form.get("note", ""), request.number("chunk")
    task = _item(hv, request).task
    reviews.retry_chunk(hv, request.path["batch"], note, number, [task])
    return f"{task} is back in the queue, with your note"


PAGES = (
    Page(
        "/review/{batch}/{chunk}/{task}",
        "review_item",
        item_values,
        parts={"head": head, "changes": changes, "change": change, "edit": edit},
    ),
)
ACTIONS = (
    Action("/review/{batch}/{chunk}/{task}/correct", correct),
    Action("/review/{batch}/{chunk}/{task}/retry", retry),
)
