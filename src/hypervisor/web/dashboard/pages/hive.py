"""The hive: findings that agents share, found by words, and what contradicts what."""

from __future__ import annotations

from hypervisor.hive.branch import branches
from hypervisor.hive.branch_report import headline, hive_report
from hypervisor.hive.recall import recall
from hypervisor.queue.context import Context
from hypervisor.web.dashboard.page import Page, Request, Values

SHOWN = 50


def form(hv: Context, request: Request) -> Values:
    return {"branches": branches(hv), "query": request.query}


def found(hv: Context, request: Request) -> Values:
    ask = request.query.get
    branch = ask("branch")
    known = recall(hv, ask("text", ""), branch or None, topic=ask("topic", ""), limit=SHOWN)
    return {"known": known, "most": SHOWN}


def report(hv: Context, request: Request) -> Values:
    whole = hive_report(hv, request.query.get("branch") or None)
    return {"report": whole, "headlines": [headline(part) for part in whole.branches]}


PAGES = (Page("/hive", "hive", form, {"found": found, "report": report}),)
