"""Budgets in money and tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from hypervisor.core.records import NamedTuple
from hypervisor.core.text import used_text
from hypervisor.queue.agent_session import Spent
from hypervisor.runs.spec import AgentSpec

if TYPE_CHECKING:
    from hypervisor.agents.profile import AgentProfile, Price

WARN_AT = 0.8


class Limit(NamedTuple):
    """A budget and how much of it is used; money is in millionths."""

    what: str  # "the batch's budget" …
    used: int
    limit: int
    is_money: bool
    estimated: bool
    raise_it: str  # what to do next, for people


def price_of(profile: AgentProfile, model: str, prices: Mapping[str, Price]) -> Price | None:
    """The price of tokens: the table's for the model or the agent, else the profile's."""
    name = model or profile.model
    return prices.get(name) or prices.get(profile.name) or profile.price


def batch_limits(spent: Spent, spec: AgentSpec) -> list[Limit]:
    """The budgets of a batch; `spent` is its cost so far."""
    more = "To continue, run it again with a larger budget; nothing is lost."
    return [
        *_money("the batch's budget", spent, spec.budget, more),
        *_tokens("the token limit of the batch", spent, spec.tokens, more),
    ]


def day_limits(day: Spent, day_budget: int | None, day_tokens: int | None) -> list[Limit]:
    """The daily budgets of config.toml; `day` is today's cost so far."""
    tomorrow = "Resume it tomorrow (UTC), or raise [budget] in config.toml first."
    return [
        *_money("today's budget", day, day_budget, tomorrow),
        *_tokens("today's token limit", day, day_tokens, tomorrow),
    ]


def task_limits(spent: Spent, spec: AgentSpec) -> list[Limit]:
    """The budgets of one task; `spent` is its cost so far."""
    more = "Raise it with {}, or make the task smaller."
    return [
        *_money("the task's budget", spent, spec.task_budget, more.format("--task-budget")),
        *_tokens(
            "the token limit of the task", spent, spec.task_tokens, more.format("--task-tokens")
        ),
    ]


def over(limits: Iterable[Limit]) -> str | None:
    """Why nothing more may be spent; None if it may."""
    for limit in limits:
        if limit.used >= limit.limit:
            return f"{limit.what} is used up: {_figures(limit)}. {limit.raise_it}"
    return None


def near(limits: Iterable[Limit]) -> str | None:
    """A warning once four fifths of a budget are used."""
    for limit in limits:
        if limit.used >= limit.limit * WARN_AT:
            return f"{limit.what} is nearly used up: {_figures(limit)}."
    return None


def uncounted(spent: Spent, spec: AgentSpec) -> str | None:
    """A warning if there is a budget but some costs are unknown."""
    if spec.budget is None or not spent.unpriced:
        return None
    return (
        f"{spent.unpriced} agent runs have no known price and do not count toward the budget: "
        f"set a price in [prices.AGENT] in config.toml."
    )


def _money(name: str, spent: Spent, limit: int | None, raise_it: str) -> list[Limit]:
    if limit is None:
        return []
    return [Limit(name, spent.cost_micros, limit, True, spent.estimated, raise_it)]


def _tokens(name: str, spent: Spent, limit: int | None, raise_it: str) -> list[Limit]:
    return [] if limit is None else [Limit(name, spent.tokens, limit, False, False, raise_it)]


def _figures(limit: Limit) -> str:
    if limit.is_money:
        estimate = " (an estimate)" if limit.estimated else ""
        return f"{used_text(limit.used, limit.limit)}{estimate}"
    return f"{limit.used:,} of {limit.limit:,}"
