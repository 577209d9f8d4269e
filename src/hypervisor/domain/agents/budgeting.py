"""Money and tokens: what a run cost, and whether more may be spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hypervisor.domain.agents.heard import Heard
from hypervisor.domain.agents.profile import AgentProfile, Price
from hypervisor.domain.agents.session import Spent
from hypervisor.domain.run import RunSpec

MICROS = 1_000_000
WARN_AT = 0.8
NOTHING = Spent()


class Limit(NamedTuple):
    """One budget and how far it is used up; money is in millionths."""

    what: str  # "the batch's budget" …
    used: int
    limit: int
    is_money: bool
    estimated: bool
    raise_it: str  # how to go on, for people


def cost_micros(heard: Heard, price: Price | None) -> tuple[int | None, bool]:
    """What a run cost, and whether that is an estimate from a price table."""
    if heard.cost is not None and 0 <= heard.cost < 1e9:
        return round(heard.cost * MICROS), False
    if price is None:
        return None, False
    tokens = heard.tokens
    # A price for a million tokens is the millionths that one token costs.
    cost = tokens.input * price.input + tokens.output * price.output + tokens.cached * price.cached
    return round(cost), True


def price_of(profile: AgentProfile, model: str, prices: Mapping[str, Price]) -> Price | None:
    """The price for a run: the table's for the model or the agent, else the profile's own."""
    name = model or profile.model
    return prices.get(name) or prices.get(profile.name) or profile.price


def over(
    spent: Spent,
    spec: RunSpec,
    day: Spent = NOTHING,
    day_budget: int | None = None,
    day_tokens: int | None = None,
) -> str | None:
    """Why nothing more of the batch may be started, None if it may."""
    for each in limits(spent, spec, day, day_budget, day_tokens):
        if each.used >= each.limit:
            return f"{each.what} is used up: {_figures(each)}. {each.raise_it}"
    return None


def near(
    spent: Spent,
    spec: RunSpec,
    day: Spent = NOTHING,
    day_budget: int | None = None,
    day_tokens: int | None = None,
) -> str | None:
    """A warning once four fifths of a budget are used up, or where money cannot be counted."""
    for each in limits(spent, spec, day, day_budget, day_tokens):
        if each.used >= each.limit * WARN_AT:
            return f"{each.what} is nearly used up: {_figures(each)}."
    if spec.budget is not None and spent.unpriced:
        return (
            f"{spent.unpriced} runs of agents have no known price, so the budget does not count "
            "them: set a price in [prices.AGENT] of config.toml."
        )
    return None


def over_task(spent: Spent, spec: RunSpec) -> str | None:
    """Why the agent at work on a task must stop; `spent` is all that the task has cost."""
    found = (
        Limit("the task's budget", spent.cost_micros, spec.task_budget or 0, True,
              spent.estimated, "Give it more with --task-budget, or make the task smaller.")
        if spec.task_budget is not None else None,
        Limit("the task's number of tokens", spent.tokens, spec.task_tokens or 0, False, False,
              "Give it more with --task-tokens, or make the task smaller.")
        if spec.task_tokens is not None else None,
    )  # fmt: skip
    for each in found:
        if each is not None and each.used >= each.limit:
            return f"{each.what} is used up: {_figures(each)}. {each.raise_it}"
    return None


def limits(
    spent: Spent, spec: RunSpec, day: Spent, day_budget: int | None, day_tokens: int | None
) -> list[Limit]:
    """All budgets that hold for a batch."""
    more = "Run it again with a larger one to go on; nothing is lost."
    tomorrow = "Resume it tomorrow (UTC), or once [budget] of config.toml gives more."
    asked = (
        ("the batch's budget", spent.cost_micros, spec.budget, True, spent.estimated, more),
        ("the batch's number of tokens", spent.tokens, spec.tokens, False, False, more),
        ("today's budget", day.cost_micros, day_budget, True, day.estimated, tomorrow),
        ("today's number of tokens", day.tokens, day_tokens, False, False, tomorrow),
    )
    return [
        Limit(what, used, limit, is_money, estimated, how)
        for what, used, limit, is_money, estimated, how in asked
        if limit is not None
    ]


def money(micros: int) -> str:
    """An amount for people: 1.00, 0.0042."""
    text = f"{micros / MICROS:.4f}"
    return text[:-2] if text.endswith("00") else text


def _figures(limit: Limit) -> str:
    if limit.is_money:
        estimate = " (an estimate)" if limit.estimated else ""
        return f"{money(limit.used)} of {money(limit.limit)}{estimate}"
    return f"{limit.used:,} of {limit.limit:,}"
