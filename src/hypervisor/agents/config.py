"""The tables of config.toml about agents: profiles, routing, prices and the daily budget."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from hypervisor.agents import stream_state as kinds
from hypervisor.agents.agent_settings import GATEWAY, AgentSettings
from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.profile import ACP, STREAMS, AgentProfile, Price
from hypervisor.agents.routing import PICKS, Route
from hypervisor.agents.stream_state import ErrorKind
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import closest
from hypervisor.runs import config_readers as readers
from hypervisor.runs.config_readers import Key
from hypervisor.runs.sandbox.level import LEVELS
from hypervisor.runs.spec import AUTO, PERMISSIONS, Permissions

MAX_MONEY = 1_000_000
MAX_TOKENS = 10**15
MAX_AGENTS = 100
MAX_GRACE = 600
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
# Tested with the real programs: a changed profile no longer counts as tested.
TESTED = ("program", "stream", "argv", "resume", "prompt", "mcp", "permissions")


# What a profile for ACP takes from the one that it is `like`.
KEPT_FOR_ACP = (
    *("env", "passes", "keys", "login", "model", "provider", "capabilities", "workers"),
    *("memory", "price", "install", "mcp", "pick", "modes", "gateway"),
)


def agent_settings_from(config: Mapping[str, Any]) -> AgentSettings:
    """The settings of the tables about agents."""
    profiles = profiles_from(config.get("agents", {}))
    return AgentSettings(
        profiles,
        routes_from(config.get("routing", []), profiles),
        prices_from(config.get("prices", {})),
        *budget_from(config.get("budget", {})),
        gateway=gateway_from(config.get("gateway", {})),
    )


def profiles_from(table: object) -> Mapping[str, AgentProfile]:
    """The built-in profiles, changed and extended by the tables [agents.NAME]."""
    tables = _tables("agents", table)
    if len(tables) > MAX_AGENTS:
        raise InvalidInput(f"agents: {len(tables)} tables (maximum {MAX_AGENTS}).")
    if not tables:
        return BUILTIN
    profiles = dict(BUILTIN)
    waiting = dict(tables)
    while waiting:  # a profile may be `like` a later one
        ready = [name for name, table in waiting.items() if _base(name, table) not in waiting]
        if not ready:
            raise InvalidInput(f"agents.{next(iter(waiting))}.like refers back to itself.")
        for name in ready:
            profiles[name] = _profile(name, waiting.pop(name), profiles)
    return MappingProxyType(profiles)


def routes_from(rules: object, agents: Mapping[str, AgentProfile]) -> tuple[Route, ...]:
    """The rules of [[routing]], in order."""
    if not isinstance(rules, list):
        raise InvalidInput("routing must be a list of tables, as in [[routing]].")
    routes = []
    for number, table in enumerate(rules, 1):
        key = f"routing[{number}]"
        values = readers.values(key, table, ROUTE)
        names = values.pop("agent", ())
        if not names:
            raise InvalidInput(f"{key}.agent is missing: name the agent that gets these tasks.")
        for name in names:
            if name not in agents:
                raise InvalidInput(f"{key}.agent: {_unknown(name, agents)}")
        routes.append(Route(names, **values))
    return tuple(routes)


def prices_from(table: object) -> Mapping[str, Price]:
    """[prices.NAME]; the name is that of an agent or a model."""
    tables = _tables("prices", table)
    return MappingProxyType(
        {name: _price(f"prices.{name}", price) for name, price in tables.items()}
    )


def budget_from(table: object) -> tuple[int | None, int | None]:
    """[budget]: money per day in millionths, and tokens per day."""
    values = readers.values("budget", table, BUDGET)
    return values.get("day"), values.get("day_tokens")


def gateway_from(table: object) -> bool:
    """[gateway]: whether agents with an API key call their model through it."""
    enabled: bool = readers.values("gateway", table, GATEWAY_TABLE).get("enabled", GATEWAY)
    return enabled


def _profile(name: str, table: object, profiles: Mapping[str, AgentProfile]) -> AgentProfile:
    key = f"agents.{name}"
    if not NAME.fullmatch(name) or name == AUTO:
        raise InvalidInput(f"{key}: an agent's name has letters, digits, '.', '_', '-' only.")
    values = readers.values(key, table, PROFILE)
    like = values.pop("like", "") or (name if name in profiles else "")
    if like and like not in profiles:
        raise InvalidInput(f"{key}.like: {_unknown(like, profiles)}")
    base = profiles[like] if like else _new(name, values, profiles)
    if values.get("stream") == ACP != base.stream:
        base = _without_arguments(base)
    profile = base._replace(name=name, **values)
    profile = profile._replace(
        passes=tuple(dict.fromkeys((*profile.passes, *profile.keys))),
        env=MappingProxyType({**base.env, **values.get("env", {})}),
        permissions=MappingProxyType({**base.permissions, **values.get("permissions", {})}),
        verified=base.verified and not any(field in values for field in TESTED),
    )
    _check_words(key, profile)
    return profile


def _new(
    name: str, values: Mapping[str, Any], profiles: Mapping[str, AgentProfile]
) -> AgentProfile:
    """The base of an agent without a built-in profile."""
    if not {"program", "argv"} & set(values):
        raise InvalidInput(f"agents.{name}: {_unknown(name, profiles)} A new one needs a program.")
    return AgentProfile(
        name, name, argv=("{prompt}",) if values.get("prompt") == "argument" else ()
    )


def _without_arguments(profile: AgentProfile) -> AgentProfile:
    """An agent that is run over ACP has none of the options of its command line for a prompt."""
    return AgentProfile(
        profile.name,
        profile.program,
        calls_as=profile.stream,
        **{field: getattr(profile, field) for field in KEPT_FOR_ACP},
    )


def _check_words(key: str, profile: AgentProfile) -> None:
    for field in ("argv", "resume"):
        for word in getattr(profile, field):
            for placeholder in PLACEHOLDER.findall(word):
                if placeholder == word and placeholder not in KNOWN:
                    raise InvalidInput(
                        f"{key}.{field}: unknown placeholder {placeholder}; use one of "
                        f"{', '.join(sorted(KNOWN))}."
                    )
    takes = any("{prompt}" in word for word in profile.argv)
    if takes != (profile.prompt == "argument"):
        problem = "has no {prompt}" if not takes else 'has {prompt}, so prompt must be "argument"'
        raise InvalidInput(f"{key}.argv {problem}.")
    if profile.resume and not any("{session}" in word for word in profile.resume):
        raise InvalidInput(f"{key}.resume has no {{session}}.")


def _base(name: str, table: object) -> str | None:
    like = table.get("like") if isinstance(table, Mapping) else None
    return like if isinstance(like, str) and like != name else None


def _unknown(name: str, known: Mapping[str, object]) -> str:
    similar = closest(name, known)
    hint = f"did you mean {similar}?" if similar else f"use one of {', '.join(known)}."
    return f"unknown agent {name[:60]!r}; {hint}"


def _tables(key: str, table: object) -> Mapping[str, object]:
    if not isinstance(table, Mapping):
        raise InvalidInput(f"{key} must be tables, as in [{key}.NAME].")
    return table


# Readers of keys


def _refuse(key: str, expected: str) -> NoReturn:
    raise InvalidInput(f"{key} must be {expected}.")


def _text(key: str, value: Any) -> str:
    return validate.text(key, value, 1_000)


def _words(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > validate.MAX_NAMES:
        _refuse(key, 'a list of words, as in ["--json", "{prompt}"]')
    return tuple(validate.text(key, word, 10_000) for word in value)


def _variables(key: str, value: Any) -> tuple[str, ...]:
    names = _words(key, value)
    if not all(VARIABLE.fullmatch(name) for name in names):
        _refuse(key, 'names of environment variables, as in ["MY_API_KEY"]')
    return names


def _paths(key: str, value: Any) -> tuple[str, ...]:
    paths = _words(key, value)
    if any(path.startswith("/") or ".." in path.split("/") or not path for path in paths):
        _refuse(key, 'paths below the home folder, as in [".tool/auth.json"]')
    return paths


def _env(key: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(
        isinstance(text, str) and VARIABLE.fullmatch(name) and "\0" not in text
        for name, text in value.items()
    ):
        _refuse(key, 'a table of texts, as in {NO_UPDATES = "1"}')
    return dict(value)


def _modes(key: str, value: Any) -> dict[Permissions, tuple[str, ...]]:
    if not isinstance(value, Mapping) or not set(value) <= set(PERMISSIONS):
        _refuse(key, f"a table of lists for {', '.join(PERMISSIONS)}")
    return {mode: _words(f"{key}.{mode}", words) for mode, words in value.items()}


def _session_modes(key: str, value: Any) -> dict[Permissions, str]:
    if not isinstance(value, Mapping) or not set(value) <= set(PERMISSIONS):
        _refuse(key, f"a table of names for {', '.join(PERMISSIONS)}")
    return {mode: _text(f"{key}.{mode}", name) for mode, name in value.items()}


def _codes(key: str, value: Any) -> Mapping[int, ErrorKind]:
    if not isinstance(value, Mapping) or not all(
        str(code).isdecimal() and 0 < int(code) < 256 and kind in KINDS
        for code, kind in value.items()
    ):
        _refuse(key, f'exit codes with one of {", ".join(KINDS)}, as in {{53 = "turns"}}')
    return MappingProxyType({int(code): kind for code, kind in value.items()})


def _price(key: str, value: Any) -> Price:
    prices = readers.values(key, value, PRICE)
    if "input" not in prices or "output" not in prices:
        _refuse(key, "a table with the price of a million tokens: {input = 1.25, output = 10}")
    return Price(**prices)


def _money(key: str, value: Any) -> int:
    amount: float = readers.number(0, MAX_MONEY)(key, value)
    return round(amount * 1_000_000)


def _grace(key: str, value: Any) -> float:
    seconds = readers.span(value, key) / 1000
    if seconds > MAX_GRACE:
        _refuse(key, f"at most {MAX_GRACE} s")
    return seconds


def _memory(key: str, value: Any) -> int:
    return readers.size(value, key)


def _agents(key: str, value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        _refuse(key, 'an agent or a list of them, as in ["gemini", "qwen"]')
    return tuple(names)


def _list(key: str, value: Any) -> tuple[str, ...]:
    return validate.names(key, [value] if isinstance(value, str) else value)


_MONEY = readers.number(0, MAX_MONEY)
_WORDS, _NAMES = "list of arguments", "list of names"
PRICE: dict[str, Key] = {
    "input": Key(_MONEY, "US dollars", "price of a million input tokens", example="1.25"),
    "output": Key(_MONEY, "US dollars", "price of a million output tokens", example="10.00"),
    "cached": Key(_MONEY, "US dollars", "price of a million cached input tokens", "0"),
}
BUDGET: dict[str, Key] = {
    "day": Key(
        _money, "US dollars", "pause agent batches at this cost per UTC day", example="20.00"
    ),
    "day_tokens": Key(
        readers.number(0, MAX_TOKENS, whole=True),
        "number",
        "pause agent batches at this many tokens per UTC day",
        example="50_000_000",
    ),
}
GATEWAY_TABLE: dict[str, Key] = {
    "enabled": Key(
        readers.yes_or_no,
        "true, false",
        "agents with an API key call their model through the gateway",
        "true",
    ),
}
ROUTE: dict[str, Key] = {
    "agent": Key(_agents, "name or list", "the agents that get these tasks", example='"claude"'),
    "types": Key(_list, _NAMES, "tasks of one of these types", example='["rename"]'),
    "tags": Key(_list, _NAMES, "tasks with one of these tags", example='["security"]'),
    "complexity": Key(_list, _NAMES, "tasks of one of these complexities", example='["simple"]'),
    "requires": Key(_list, _NAMES, "tasks that require one of these", example='["browser"]'),
    "pick": Key(
        readers.one_of(*PICKS),
        ", ".join(PICKS),
        "which of the agents: the first that is ready, or the cheapest of those",
        '"first"',
    ),
}
PROFILE: dict[str, Key] = {
    "like": Key(_text, "agent", "start with the values of this agent", example='"claude"'),
    "program": Key(_text, "path", "the program: a name on PATH, or a path", example='"my-agent"'),
    "stream": Key(
        readers.one_of(*STREAMS), ", ".join(STREAMS), "the format of its output", '"text"'
    ),
    "argv": Key(_words, _WORDS, "arguments of the program, with placeholders", "[]"),
    "resume": Key(
        _words, _WORDS, "arguments to resume a {session}, instead of argv; [] if it cannot", "[]"
    ),
    "attach": Key(
        _words, _WORDS, "arguments to resume a {session} in a terminal, for hv attach", "[]"
    ),
    "prompt": Key(
        readers.one_of("stdin", "argument"),
        "stdin, argument",
        "how it gets the prompt; with argument, argv has {prompt}",
        '"stdin"',
    ),
    "env": Key(_env, "table", "environment variables to set", "{}"),
    "passes": Key(
        _variables, _NAMES, "your variables to pass on, beyond PATH, locale and proxies", "[]"
    ),
    "keys": Key(
        _variables,
        _NAMES,
        "variables with secrets: passed on, never shown; tell accounts apart",
        "[]",
    ),
    "gateway": Key(
        readers.yes_or_no,
        "true, false",
        "with an API key, call its model through the gateway",
        "true",
    ),
    "login": Key(_paths, "list of paths", "files below your home that hold its login", "[]"),
    "mcp": Key(_words, _WORDS, "arguments for {mcp}: connect it to the MCP server", "[]"),
    "permissions": Key(_modes, "table", "arguments for {permissions}, by mode", "{}"),
    "modes": Key(_session_modes, "table", "mode of its session over ACP, by permissions", "{}"),
    "allow": Key(_words, _WORDS, "arguments for {allow}, repeated for each allowed tool", "[]"),
    "turns": Key(_words, _WORDS, "arguments for {turns}: limit the turns to {value}", "[]"),
    "budget": Key(_words, _WORDS, "arguments for {budget}: limit the cost to {value}", "[]"),
    "schema": Key(
        _words, _WORDS, "arguments for {schema}: {value} is the schema, {file} its file", "[]"
    ),
    "pick": Key(_words, _WORDS, "arguments for {pick}: use the model {value}", "[]"),
    "usage": Key(_words, _WORDS, "arguments for {usage}: write token counts to {value}", "[]"),
    "model": Key(_text, readers.TEXT, "the model, unless --model is given", '""'),
    "provider": Key(_text, readers.TEXT, "whose rate limits apply", '""'),
    "capabilities": Key(_list, _NAMES, "what it can do, for tasks that require it", "[]"),
    "workers": Key(
        readers.number(1, readers.MAX_WORKERS, whole=True),
        "number",
        "maximum number at once on this host",
        example="3",
    ),
    "memory": Key(_memory, readers.SIZE, "memory one needs, until that is measured", '"512M"'),
    "codes": Key(_codes, "table", 'exit codes with a meaning, as in {53 = "turns"}', "{}"),
    "grace": Key(_grace, readers.DURATION, "time to exit after its last output", '"10s"'),
    "price": Key(
        _price,
        "table",
        "price of a million tokens, if it does not report its cost",
        example="{input = 0.50, output = 2.00}",
    ),
    "sandbox": Key(
        readers.one_of(*LEVELS),
        ", ".join(LEVELS),
        "its sandbox, unless --sandbox is given",
        example='"network"',
    ),
    "own_sandbox": Key(_text, readers.TEXT, "how its program confines it; for display only", '""'),
    "hosts": Key(
        _list, _NAMES, "hosts of its provider, which the sandbox level network allows", "[]"
    ),
    "install": Key(_text, readers.TEXT, "how to install it; only shown", '""'),
}
