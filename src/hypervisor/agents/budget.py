"""Money and tokens: what a run cost, and whether more may be spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hypervisor.agents.profile import AgentProfile, Price
from hypervisor.agents.session import Spent
from hypervisor.core.text import amount_text
from hypervisor.runs.spec import RunSpec

WARN_AT = 0.8


class Limit(NamedTuple):
    """One budget and how far it is used up; money is in millionths."""

    what: str  # "the batch's budget" …
    used: int
    limit: int
    is_money: bool
    estimated: bool
    raise_it: str  # how to go on, for people


def price_of(profile: AgentProfile, model: str, prices: Mapping[str, Price]) -> Price | None:
    """The price for a run: the table's for the model or the agent, else the profile's own."""
    name = model or profile.model
    return prices.get(name) or prices.get(profile.name) or profile.price


def limits(
    spent: Spent, spec: RunSpec, day: Spent, day_budget: int | None, day_tokens: int | None
) -> list[Limit]:
    """All budgets that hold for a batch."""
    more = "Run it again with a larger one to go on; nothing is lost."
    tomorrow = "Resume it tomorrow (UTC), or once [budget] of config.toml gives more."
    return [
        *_money("the batch's budget", spent, spec.budget, more),
        *_tokens("the batch's number of tokens", spent, spec.tokens, more),
        *_money("today's budget", day, day_budget, tomorrow),
        *_tokens("today's number of tokens", day, day_tokens, tomorrow),
    ]


def task_limits(spent: Spent, spec: RunSpec) -> list[Limit]:
    """The budgets of one task; `spent` is all that it has cost."""
    more = "Give it more with {}, or make the task smaller."
    return [
        *_money("the task's budget", spent, spec.task_budget, more.format("--task-budget")),
        *_tokens(
            "the task's number of tokens", spent, spec.task_tokens, more.format("--task-tokens")
        ),
    ]


def over(found: Iterable[Limit]) -> str | None:
    """Why nothing more may be spent, None if it may."""
    for each in found:
        if each.used >= each.limit:
            return f"{each.what} is used up: {_figures(each)}. {each.raise_it}"
    return None


def near(found: Iterable[Limit]) -> str | None:
    """A warning once four fifths of a budget are used up."""
    for each in found:
        if each.used >= each.limit * WARN_AT:
            return f"{each.what} is nearly used up: {_figures(each)}."
    return None


def uncounted(spent: Spent, spec: RunSpec) -> str | None:
    """A warning where there is a budget and money cannot be counted."""
    if spec.budget is None or not spent.unpriced:
        return None
    return (
        f"{spent.unpriced} runs of agents have no known price, so the budget does not count "
        "them: set a price in [prices.AGENT] of config.toml."
    )


def _money(what: str, spent: Spent, limit: int | None, how: str) -> list[Limit]:
    if limit is None:
        return []
    return [Limit(what, spent.cost_micros, limit, True, spent.estimated, how)]


def _tokens(what: str, spent: Spent, limit: int | None, how: str) -> list[Limit]:
    return [] if limit is None else [Limit(what, spent.tokens, limit, False, False, how)]


def _figures(limit: Limit) -> str:
    if limit.is_money:
        estimate = " (an estimate)" if limit.estimated else ""
        return f"{amount_text(limit.used)} of {amount_text(limit.limit)}{estimate}"
    return f"{limit.used:,} of {limit.limit:,}"
