"""Agents: which are ready, which are rate-limited, what they cost."""

from __future__ import annotations

from hypervisor.agents.agents import agents
from hypervisor.agents.rate_limits import end_cooldown
from hypervisor.agents.running_status import cooling_down, money_of, spent_by_day
from hypervisor.queue.context import Context
from hypervisor.web.dashboard.page import Action, Page, Request, Values

DAYS = 14


def known(hv: Context, request: Request) -> Values:
    return {"agents": agents(hv)}


def limits(hv: Context, request: Request) -> Values:
    return {
        "cooldowns": cooling_down(hv, request.now),
        "money": money_of(hv, None, request.now),
    }


def spending(hv: Context, request: Request) -> Values:
    return {"days": spent_by_day(hv, DAYS, request.now), "count": DAYS}


def end_limit(hv: Context, request: Request) -> str:
    account = request.form.get("account", "")
    ended = end_cooldown(hv, account, request.now)
    return f"{account} may be used again" if ended else f"{account} is not rate-limited"


PAGES = (Page("/agents", "agents", parts={"known": known, "limits": limits, "spending": spending}),)
ACTIONS = (Action("/agents/end-rate-limit", end_limit),)
