"""Which agent works on which task: rules, the first that fits decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hypervisor.agents.profile import AgentProfile, Price
from hypervisor.queue.task import NewTask

AUTO = "auto"
FIRST, CHEAPEST = "first", "cheapest"
PICKS = (FIRST, CHEAPEST)


class Route(NamedTuple):
    """Tasks of one of these types, with one of these tags and so on go to the first of the
    agents that is there; an empty field fits every task. `pick` "cheapest" takes the one with
    the lowest price instead."""

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
# Mechanical work goes to a cheap agent, judgement to a strong one: named by type, tag or
# complexity, whichever the task has. These come after the user's own rules.
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
    """The agent for a task, `default` where no rule fits.

    With `profiles` (those that can be used here) only they are chosen, and only if they can do
    what the task requires; `has` is what every worker of this host can do. "" is the answer
    where nobody can."""
    for rule in routes:
        if _fits(rule, task):
            able = [name for name in rule.agents if _able(name, task, profiles, has)]
            if able:
                return _picked(able, rule.pick, profiles or {}, prices or {})
    if _able(default, task, profiles, has):
        return default
    return next((name for name in profiles or () if _able(name, task, profiles, has)), "")


def lacking(
    task: NewTask, profiles: Iterable[AgentProfile], has: Collection[str] = ()
) -> tuple[str, ...]:
    """What a task requires that none of the agents can do; () if one of them can do it all."""
    fewest: tuple[str, ...] = task.requires
    for profile in profiles:
        missing = _missing(task, profile, has)
        if len(missing) < len(fewest):
            fewest = missing
    return fewest


def _fits(rule: Route, task: NewTask) -> bool:
    wanted = (
        (rule.types, (task.type,)),
        (rule.tags, _words(task, "tags")),
        (rule.complexity, _words(task, "complexity")),
        (rule.requires, task.requires),
    )
    return all(not names or _meet(names, found) for names, found in wanted)


def _meet(names: Sequence[str], found: Iterable[str]) -> bool:
    known = {name.casefold() for name in names}
    return any(each.casefold() in known for each in found)


def _words(task: NewTask, name: str) -> tuple[str, ...]:
    """What the task's data says, itself or in the columns of its item: text or a list of it."""
    data = task.data if isinstance(task.data, dict) else {}
    columns = data.get("columns")
    found: Any = data.get(name)
    if found is None and isinstance(columns, dict):
        found = columns.get(name)
    if isinstance(found, str):
        return tuple(word.strip().lstrip("#") for word in found.split(","))
    if isinstance(found, (list, tuple)):
        return tuple(word.strip().lstrip("#") for word in found if isinstance(word, str))
    return ()


def _able(
    name: str,
    task: NewTask,
    profiles: Mapping[str, AgentProfile] | None,
    has: Collection[str],
) -> bool:
    if profiles is None:
        return True
    return name in profiles and not _missing(task, profiles[name], has)


def _missing(task: NewTask, profile: AgentProfile, has: Collection[str]) -> tuple[str, ...]:
    known = {*profile.capabilities, *has, f"agent:{profile.name}"}
    return tuple(name for name in task.requires if name not in known)


def _picked(
    able: list[str],
    pick: str,
    profiles: Mapping[str, AgentProfile],
    prices: Mapping[str, Price],
) -> str:
    if pick != CHEAPEST:
        return able[0]

    def cost(name: str) -> float:
        profile = profiles.get(name)
        price = prices.get(name) or (profile.price if profile else None)
        return price.input + price.output if price else float("inf")

    return min(able, key=cost)
