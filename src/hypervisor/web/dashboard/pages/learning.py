"""Learning: how much each type of task gains from parallel workers, and the next choice."""

from __future__ import annotations

from hypervisor.learning.learn import learnings
from hypervisor.queue.context import Context
from hypervisor.web.dashboard.page import Page, Request, Values
from hypervisor.web.report.gains import curves


def learned(hv: Context, request: Request) -> Values:
    found = learnings(hv)
    drawn = {curve.learned.name: curve for curve in curves(found)}
    return {"learned": found, "curves": {each.name: drawn.get(each.name) for each in found}}


PAGES = (Page("/learning", "learning", parts={"learned": learned}),)
