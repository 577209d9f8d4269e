"""The hive: findings that agents share, found by words, and what contradicts what."""

from __future__ import annotations

from hypervisor.hive.branch import branches
from hypervisor.hive.branch_report import headline, hive_report
from hypervisor.hive.recall import recall
from hypervisor.hive.remember import forget
from hypervisor.hive.review import approve_findings, must_review, unreviewed_findings
from hypervisor.queue.context import Context
from hypervisor.web.dashboard.page import Action, Page, Request, Values

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


def review(hv: Context, request: Request) -> Values:
    """Findings that wait for a review, if config.toml asks for one."""
    branch = request.query.get("branch") or None
    waiting = unreviewed_findings(hv, branch, SHOWN + 1) if must_review(hv) else ()
    return {"waiting": waiting[:SHOWN], "more": len(waiting) > SHOWN}


def approve(hv: Context, request: Request) -> str:
    approve_findings(hv, [request.path["finding"]])
    return "approved; agents of other branches may get it"


def reject(hv: Context, request: Request) -> str:
    return f"{forget(hv, request.path['finding'])} is deleted"


PAGES = (Page("/hive", "hive", form, {"review": review, "found": found, "report": report}),)
ACTIONS = (
    Action("/hive/{finding}/approve", approve),
    Action("/hive/{finding}/reject", reject),
)
