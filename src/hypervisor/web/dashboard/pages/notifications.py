"""Notifications: rules, and what could not be delivered."""

from __future__ import annotations

from hypervisor.core.text import pluralize
from hypervisor.notifications.notify import (
    dead_letters,
    drop_notices,
    remove_rule,
    retry_notices,
    rules,
    try_rule,
)
from hypervisor.queue.context import Context
from hypervisor.web.dashboard.page import Action, Page, Request, Values


def listed(hv: Context, request: Request) -> Values:
    return {"rules": rules(hv)}


def undelivered(hv: Context, request: Request) -> Values:
    return {"letters": dead_letters(hv)}


def test(hv: Context, request: Request) -> str:
    name = request.path["name"]
    try_rule(hv, name, request.now)
    return f"the test of {name} arrived"


def remove(hv: Context, request: Request) -> str:
    name = request.path["name"]
    remove_rule(hv, name, request.now)
    return f"removed the rule {name}"


def retry(hv: Context, request: Request) -> str:
    return f"{pluralize(retry_notices(hv), 'notification')} will be sent again"


def drop(hv: Context, request: Request) -> str:
    return f"deleted {pluralize(drop_notices(hv), 'notification')}"


PAGES = (
    Page("/notifications", "notifications", parts={"rules": listed, "undelivered": undelivered}),
)
ACTIONS = (
    Action("/notifications/retry", retry),
    Action("/notifications/drop", drop),
    Action("/notifications/rules/{name}/test", test),
    Action("/notifications/rules/{name}/remove", remove),
)
