"""Home: what needs a person, what runs, why nothing starts, what has finished, the host."""

from __future__ import annotations

from hypervisor.agents.running_status import used_up_today
from hypervisor.batches.review import awaiting
from hypervisor.monitoring.finished import finished as last_finished
from hypervisor.monitoring.finished import finished_since
from hypervisor.monitoring.held_back import held_back
from hypervisor.monitoring.status import attempts, quick_status
from hypervisor.queue.context import Context
from hypervisor.queue.queries import batch_names, list_tasks
from hypervisor.web.dashboard.page import Page, Request, Values

MAX_SHOWN = 12
MAX_RUNNING = 64


def needs(hv: Context, request: Request) -> Values:
    tasks = list_tasks(hv, ("review", "blocked"), limit=MAX_SHOWN + 1)
    names = batch_names(hv, (task.batch for task in tasks))
    return {
        "checkpoints": awaiting(hv),
        "budgets": used_up_today(hv, request.now),
        "tasks": tasks,
        "most": MAX_SHOWN,
        "names": names,
    }


def running(hv: Context, request: Request) -> Values:
    found = attempts(hv)
    return {
        "attempts": found[:MAX_RUNNING],
        "total": len(found),
        "names": batch_names(hv, (attempt.batch for attempt in found)),
    }


def waiting(hv: Context, request: Request) -> Values:
    status = quick_status(hv, now=request.now)
    reasons = held_back(hv, status, request.now)
    return {
        "status": status,
        "reasons": reasons,
        "names": batch_names(hv, (reason.batch for reason in reasons)),
    }


def since(hv: Context, request: Request) -> Values:
    """What has finished since the last visit, which a tab asks for once. The part `finished` is the
    same for all tabs, so they share its rendering."""
    visited = request.number("since")
    return {"count": finished_since(hv, visited) if visited else None}


def finished(hv: Context, request: Request) -> Values:
    found = last_finished(hv)
    return {"finished": found, "names": batch_names(hv, (row.task.batch for row in found))}


PAGES = (
    Page(
        "/",
        "home",
        parts={
            "needs": needs,
            "running": running,
            "waiting": waiting,
            "since": since,
            "finished": finished,
        },
    ),
)
