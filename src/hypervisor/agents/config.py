"""What config.toml says about agents: profiles, routing, prices and the budget of a day."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from hypervisor.agents import stream_state as kinds
from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.profile import MODES, STREAMS, AgentProfile, Price
from hypervisor.agents.routing import AUTO, PICKS, Route
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.runs import config
from hypervisor.runs.config import Reader

MOST_MONEY = 1_000_000
MOST_TOKENS = 10**15
MOST_AGENTS = 100
LONGEST_GRACE = 600
KINDS = (
    kinds.QUOTA,
    kinds.OVERLOAD,
    kinds.AUTH,
    kinds.REQUEST,
    kinds.SERVER,
    kinds.NETWORK,
    kinds.STREAM,
    kinds.TURNS,
    kinds.BUDGET,
    kinds.RESUME,
)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLACEHOLDER = re.compile(r"\{[a-z_]+\}")
FILLED = ("mcp", "permissions", "allow", "turns", "budget", "schema", "usage", "pick")
KNOWN = frozenset(f"{{{name}}}" for name in ("prompt", "session", *FILLED))
# What the tests have run: a change to one of these makes another agent of it.
TESTED = ("program", "stream", "argv", "resume", "prompt", "mcp", "permissions")


def agents_from(given: object) -> Mapping[str, AgentProfile]:
    """The built-in profiles, changed and added to by the tables [agents.NAME]."""
    tables = _tables("agents", given)
    if len(tables) > MOST_AGENTS:
        raise InvalidInput(f"agents: {len(tables)} tables, at most {MOST_AGENTS}.")
    found = dict(BUILTIN)
    waiting = dict(tables)
    while waiting:  # a profile may be like one that comes later
        ready = [name for name, table in waiting.items() if _base(name, table) not in waiting]
        if not ready:
            raise InvalidInput(f"agents.{next(iter(waiting))}.like goes round in a circle.")
        for name in ready:
            found[name] = _profile(name, waiting.pop(name), found)
    return MappingProxyType(found)


def routes_from(given: object, agents: Mapping[str, AgentProfile]) -> tuple[Route, ...]:
    """The rules of [[routing]], in their order."""
    if not isinstance(given, list):
        raise InvalidInput("routing must be a list of tables, as in [[routing]].")
    routes = []
    for number, table in enumerate(given, 1):
        where = f"routing[{number}]"
        values = config.values(where, table, ROUTE)
        names = values.pop("agent", ())
        if not names:
            raise InvalidInput(f"{where}.agent is missing: name the agent that gets these tasks.")
        for name in names:
            if name not in agents:
                raise InvalidInput(f"{where}.agent: {_unknown(name, agents)}")
        routes.append(Route(names, **values))
    return tuple(routes)


def prices_from(given: object) -> Mapping[str, Price]:
    """[prices.NAME], where the name is an agent's or a model's."""
    tables = _tables("prices", given)
    return MappingProxyType({name: _price(f"prices.{name}", each) for name, each in tables.items()})


def budget_from(given: object) -> tuple[int | None, int | None]:
    """[budget]: the money of a day in millionths, and its tokens."""
    values = config.values("budget", given, BUDGET)
    return values.get("day"), values.get("day_tokens")


def _profile(name: str, table: object, known: Mapping[str, AgentProfile]) -> AgentProfile:
    where = f"agents.{name}"
    if not NAME.fullmatch(name) or name == AUTO:
        raise InvalidInput(f"{where}: an agent's name has letters, digits, '.', '_', '-' only.")
    values = config.values(where, table, PROFILE)
    like = values.pop("like", "") or (name if name in known else "")
    if like and like not in known:
        raise InvalidInput(f"{where}.like: {_unknown(like, known)}")
    base = known[like] if like else _new(name, values, known)
    profile = base._replace(name=name, **values)
    profile = profile._replace(
        passes=tuple(dict.fromkeys((*profile.passes, *profile.keys))),
        env=MappingProxyType({**base.env, **values.get("env", {})}),
        permissions=MappingProxyType({**base.permissions, **values.get("permissions", {})}),
        verified=base.verified and not any(field in values for field in TESTED),
    )
    _check_words(where, profile)
    return profile


def _new(name: str, values: Mapping[str, Any], known: Mapping[str, AgentProfile]) -> AgentProfile:
    """One that nobody knows: without further words it takes the prompt as `prompt` says."""
    if not {"program", "argv"} & set(values):
        raise InvalidInput(f"agents.{name}: {_unknown(name, known)} A new one needs a program.")
    return AgentProfile(
        name, name, argv=("{prompt}",) if values.get("prompt") == "argument" else ()
    )


def _check_words(where: str, profile: AgentProfile) -> None:
    for field in ("argv", "resume"):
        for word in getattr(profile, field):
            for found in PLACEHOLDER.findall(word):
                if found == word and found not in KNOWN:
                    raise InvalidInput(
                        f"{where}.{field}: {found} is no placeholder; there are "
                        f"{', '.join(sorted(KNOWN))}."
                    )
    takes = any("{prompt}" in word for word in profile.argv)
    if takes != (profile.prompt == "argument"):
        how = "has no {prompt}" if not takes else 'has {prompt}, so prompt must be "argument"'
        raise InvalidInput(f"{where}.argv {how}.")
    if profile.resume and not any("{session}" in word for word in profile.resume):
        raise InvalidInput(f"{where}.resume has no {{session}}.")


def _base(name: str, table: object) -> str | None:
    like = table.get("like") if isinstance(table, Mapping) else None
    return like if isinstance(like, str) and like != name else None


def _unknown(name: str, known: Mapping[str, object]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
    return f"there is no agent {name[:60]!r}: {hint}"


def _tables(what: str, given: object) -> Mapping[str, object]:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{what} must be tables, as in [{what}.NAME].")
    return given


# What a key may hold.


def _refuse(what: str, wanted: str) -> NoReturn:
    raise InvalidInput(f"{what} must be {wanted}.")


def _text(what: str, value: Any) -> str:
    return validate.text(what, value, 1_000)


def _words(what: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > validate.MOST_NAMES:
        _refuse(what, 'a list of words, as in ["--json", "{prompt}"]')
    return tuple(validate.text(what, word, 10_000) for word in value)


def _variables(what: str, value: Any) -> tuple[str, ...]:
    names = _words(what, value)
    if not all(VARIABLE.fullmatch(name) for name in names):
        _refuse(what, 'names of environment variables, as in ["MY_API_KEY"]')
    return names


def _paths(what: str, value: Any) -> tuple[str, ...]:
    found = _words(what, value)
    if any(each.startswith("/") or ".." in each.split("/") or not each for each in found):
        _refuse(what, 'paths below the home folder, as in [".tool/auth.json"]')
    return found


def _env(what: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(
        isinstance(text, str) and VARIABLE.fullmatch(name) and "\0" not in text
        for name, text in value.items()
    ):
        _refuse(what, 'a table of texts, as in {NO_UPDATES = "1"}')
    return dict(value)


def _modes(what: str, value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping) or not set(value) <= set(MODES):
        _refuse(what, f"a table of lists for {', '.join(MODES)}")
    return {mode: _words(f"{what}.{mode}", words) for mode, words in value.items()}


def _codes(what: str, value: Any) -> Mapping[int, str]:
    if not isinstance(value, Mapping) or not all(
        str(code).isdecimal() and 0 < int(code) < 256 and kind in KINDS
        for code, kind in value.items()
    ):
        _refuse(what, f'exit codes with one of {", ".join(KINDS)}, as in {{53 = "turns"}}')
    return MappingProxyType({int(code): kind for code, kind in value.items()})


def _price(what: str, value: Any) -> Price:
    found = config.values(what, value, PRICE)
    if "input" not in found or "output" not in found:
        _refuse(what, "a table with the price of a million tokens: {input = 1.25, output = 10}")
    return Price(**found)


def _money(what: str, value: Any) -> int:
    amount: float = config.number(0, MOST_MONEY)(what, value)
    return round(amount * 1_000_000)


def _grace(what: str, value: Any) -> float:
    seconds = config.span(value, what) / 1000
    if seconds > LONGEST_GRACE:
        _refuse(what, f"at most {LONGEST_GRACE} s")
    return seconds


def _memory(what: str, value: Any) -> int:
    return config.size(value, what)


def _agents(what: str, value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        _refuse(what, 'an agent or a list of them, as in ["gemini", "qwen"]')
    return tuple(names)


def _list(what: str, value: Any) -> tuple[str, ...]:
    return validate.names(what, [value] if isinstance(value, str) else value)


PRICE: dict[str, Reader] = {
    name: config.number(0, MOST_MONEY) for name in ("input", "output", "cached")
}
BUDGET: dict[str, Reader] = {
    "day": _money,
    "day_tokens": config.number(0, MOST_TOKENS, whole=True),
}
ROUTE: dict[str, Reader] = {
    "agent": _agents,
    "types": _list,
    "tags": _list,
    "complexity": _list,
    "requires": _list,
    "pick": config.one_of(*PICKS),
}
PROFILE: dict[str, Reader] = {
    "like": _text,
    "program": _text,
    "stream": config.one_of(*STREAMS),
    "argv": _words,
    "resume": _words,
    "prompt": config.one_of("stdin", "argument"),
    "env": _env,
    "passes": _variables,
    "keys": _variables,
    "login": _paths,
    "mcp": _words,
    "permissions": _modes,
    "allow": _words,
    "turns": _words,
    "budget": _words,
    "schema": _words,
    "pick": _words,
    "usage": _words,
    "model": _text,
    "provider": _text,
    "capabilities": _list,
    "workers": config.number(1, config.MOST_WORKERS, whole=True),
    "memory": _memory,
    "codes": _codes,
    "grace": _grace,
    "price": _price,
    "sandbox": _text,
    "install": _text,
}
