"""Tasks: search and filter over all of them, a hundred at a time."""

from __future__ import annotations

from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import STATES, state_name
from hypervisor.queue.queries import batch_names, batches, list_tasks
from hypervisor.web.dashboard.page import Page, Request, Values

PAGE = 100
MAX_BATCHES = 200  # offered in the form; others are found by their page


def form(hv: Context, request: Request) -> Values:
    return {
        "states": {state: state_name(state) for state in STATES},
        "batches": batches(hv, MAX_BATCHES),
        "query": request.query,
    }


def matching(hv: Context, request: Request) -> Values:
    ask = request.query.get
    states = tuple(filter(None, [ask("state")]))
    tasks = list_tasks(
        hv,
        states,
        ask("batch") or None,
        type=ask("type") or None,
        text=ask("text") or None,
        before=ask("before") or None,
        limit=PAGE + 1,
    )
    kept = {name: value for name, value in request.query.items() if name not in ("before", "part")}
    return {
        "tasks": tasks[:PAGE],
        "names": batch_names(hv, (task.batch for task in tasks)),
        "more": {**kept, "before": tasks[PAGE - 1].id} if len(tasks) > PAGE else None,
        "first": kept if ask("before") else None,
    }


PAGES = (Page("/tasks", "tasks", form, {"list": matching}),)
