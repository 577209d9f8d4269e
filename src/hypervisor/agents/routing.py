"""Chooses the agent for a task by rules; the first matching rule decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hypervisor.core.records import NamedTuple
from hypervisor.queue.task import NewTask

if TYPE_CHECKING:
    from hypervisor.agents.profile import AgentProfile, Price

FIRST, CHEAPEST = "first", "cheapest"
PICKS = (FIRST, CHEAPEST)


class Route(NamedTuple):
    """Tasks that match all fields go to the first available agent; an empty field matches every
    task. With `pick` "cheapest", the agent with the lowest price is chosen instead."""

    agents: tuple[str, ...]
    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    complexity: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    pick: str = FIRST


CHEAP = ("gemini", "qwen", "opencode", "codex", "claude")
STRONG = ("claude", "codex", "gemini", "opencode", "qwen")
MECHANICAL = ("mechanical", "automatable", "simple")
JUDGEMENT = ("judgement", "judgment", "review", "complex")
# Mechanical work goes to a cheap agent, judgement to a strong one, by type, tag or complexity.
# These rules come after the user's.
DEFAULTS: tuple[Route, ...] = (
    Route(STRONG, types=JUDGEMENT),
    Route(STRONG, tags=JUDGEMENT),
    Route(STRONG, complexity=JUDGEMENT),
    Route(CHEAP, types=MECHANICAL),
    Route(CHEAP, tags=MECHANICAL),
    Route(CHEAP, complexity=MECHANICAL),
)


def route(
    task: NewTask,
    routes: Iterable[Route],
    default: str,
    profiles: Mapping[str, AgentProfile] | None = None,
    has: Collection[str] = (),
    *,
    prices: Mapping[str, Price] | None = None,
) -> str:
    """The agent for a task; `default` if no rule matches.

    With `profiles` (those usable here), only agents with the required capabilities are chosen;
    `has` are the capabilities of every worker of this host. Returns "" if no agent has them."""
    for rule in routes:
        if _fits(rule, task):
            candidates = [name for name in rule.agents if _is_able(name, task, profiles, has)]
            if candidates:
                return _pick(candidates, rule.pick, profiles or {}, prices or {})
    if _is_able(default, task, profiles, has):
        return default
    return next((name for name in profiles or () if _is_able(name, task, profiles, has)), "")


def lacking(
    task: NewTask, profiles: Iterable[AgentProfile], has: Collection[str] = ()
) -> tuple[str, ...]:
    """The required capabilities that the best agent lacks; () if one has all of them."""
    fewest: tuple[str, ...] = task.requires
    for profile in profiles:
        missing = _missing(task, profile, has)
        if len(missing) < len(fewest):
            fewest = missing
    return fewest


def _fits(rule: Route, task: NewTask) -> bool:
    conditions = (
        (rule.types, (task.type,)),
        (rule.tags, _words(task, "tags")),
        (rule.complexity, _words(task, "complexity")),
        (rule.requires, task.requires),
    )
    return all(not names or _any_match(names, values) for names, values in conditions)


def _any_match(names: Sequence[str], values: Iterable[str]) -> bool:
    accepted = {name.casefold() for name in names}
    return any(value.casefold() in accepted for value in values)


def _words(task: NewTask, name: str) -> tuple[str, ...]:
    """A field of the task's data or of its item's columns: comma-separated text, or a list."""
    data = task.data if isinstance(task.data, dict) else {}
    columns = data.get("columns")
    value: Any = data.get(name)
    if value is None and isinstance(columns, dict):
        value = columns.get(name)
    if isinstance(value, str):
        return tuple(word.strip().lstrip("#") for word in value.split(","))
    if isinstance(value, (list, tuple)):
        return tuple(word.strip().lstrip("#") for word in value if isinstance(word, str))
    return ()


def _is_able(
    name: str,
    task: NewTask,
    profiles: Mapping[str, AgentProfile] | None,
    has: Collection[str],
) -> bool:
    if profiles is None:
        return True
    return name in profiles and not _missing(task, profiles[name], has)


def _missing(task: NewTask, profile: AgentProfile, has: Collection[str]) -> tuple[str, ...]:
    offered = {*profile.capabilities, *has, f"agent:{profile.name}"}
    return tuple(name for name in task.requires if name not in offered)


def _pick(
    candidates: list[str],
    pick: str,
    profiles: Mapping[str, AgentProfile],
    prices: Mapping[str, Price],
) -> str:
    if pick != CHEAPEST:
        return candidates[0]

    def cost(name: str) -> float:
        profile = profiles.get(name)
        price = prices.get(name) or (profile.price if profile else None)
        return price.input + price.output if price else float("inf")

    return min(candidates, key=cost)
