"""The merge queue: what is on its way into a branch, and why a lane does not move."""

from __future__ import annotations

from hypervisor.git.queue_status import merge_queue
from hypervisor.queue.context import Context
from hypervisor.queue.queries import batch_names, list_tasks
from hypervisor.web.dashboard.page import Page, Request, Values

MAX_REVIEWS = 50


def lanes(hv: Context, request: Request) -> Values:
    found = merge_queue(hv)
    reviews = list_tasks(hv, ("review",), limit=MAX_REVIEWS)
    of_tasks = [task.batch for lane in found for task in lane.tasks]
    names = batch_names(hv, [*of_tasks, *(task.batch for task in reviews)])
    return {"lanes": found, "reviews": reviews, "names": names}


PAGES = (Page("/merge-queue", "merge_queue", parts={"lanes": lanes}),)
