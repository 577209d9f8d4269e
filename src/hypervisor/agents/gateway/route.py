"""Routes: where the calls of an agent go, with which key, and what the agent is given instead.

Only an API key can be kept from an agent. A login by subscription has no route: it stays
with its program.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Literal

from hypervisor.agents.profile import AgentProfile
from hypervisor.core.records import NamedTuple

Env = Mapping[str, str]
Headers = tuple[tuple[str, str], ...]
# The format of an answer; "" for calls that cost nothing.
Wire = Literal["messages", "responses", "chat", "gemini", ""]

ANTHROPIC = "https://api.anthropic.com"
OPENAI = "https://api.openai.com/v1"
GOOGLE = "https://generativelanguage.googleapis.com"
LOOPBACK = "127.0.0.1"
CODEX_CONFIG = "CODEX_CONFIG"
KEY_HEADERS = ("x-api-key", "authorization", "x-goog-api-key", "api-key")
_PAID: tuple[tuple[str, Wire], ...] = (
    ("/messages", "messages"),
    ("/responses", "responses"),
    ("/responses/compact", "responses"),
    ("/chat/completions", "chat"),
    (":generateContent", "gemini"),
    (":streamGenerateContent", "gemini"),
)
_FREE = ("/messages/count_tokens", ":countTokens")


class Upstream(NamedTuple):
    """Where calls go. `auth` are headers with the key. `key` is put into the header in which the
    token came: for programs that speak to several providers."""

    address: str
    auth: Headers = ()
    key: str = ""


class Route(NamedTuple):
    """`upstreams` by the first part of the path at the gateway. `given` is what the agent gets:
    variables with {gateway}, its address, and {token}."""

    upstreams: Mapping[str, Upstream]
    given: Mapping[str, str]
    withheld: tuple[str, ...]  # variables that it does not get

    def env(self, env: Env, address: str, token: str) -> dict[str, str]:
        """The environment of the user with the gateway in place of the key."""
        kept = {name: value for name, value in env.items() if name not in self.withheld}
        given = {
            name: text.replace("{gateway}", address).replace("{token}", token)
            for name, text in self.given.items()
        }
        return kept | given | _without_proxy(env)

    @property
    def secrets(self) -> frozenset[str]:
        """Keys, and headers that may contain one."""
        values = [value for way in self.upstreams.values() for _, value in way.auth]
        keys = [way.key for way in self.upstreams.values()]
        return frozenset({value.removeprefix("Bearer ") for value in (*values, *keys) if value})


def route_of(profile: AgentProfile, user_env: Env, model: str = "") -> Route | None:
    """None if the agent has no API key that could be kept from it. `model`: as the run sets it."""
    env = {**user_env, **profile.env}
    find = _ROUTES.get(profile.stream) or _OVER_ACP.get(profile.calls_as)
    route = find(env, model) if find else None
    if route is None:
        return None
    # Other keys of the program, too, as the login of copilot at GitHub.
    others = tuple(name for name in profile.keys if name not in route.given)
    return route._replace(withheld=tuple(dict.fromkeys((*route.withheld, *others))))


def wire_of(method: str, path: str) -> Wire | None:
    """None for calls that the gateway does not pass on: what they cost could not be counted."""
    if ".." in path.split("/"):
        return None
    if method == "POST":
        paid = next((wire for end, wire in _PAID if path.endswith(end)), None)
        return "" if paid is None and path.endswith(_FREE) else paid
    return "" if method == "GET" and "models" in path.split("/")[-2:] else None


def _claude(env: Env, _: str) -> Route | None:
    key, bearer = env.get("ANTHROPIC_API_KEY"), env.get("ANTHROPIC_AUTH_TOKEN")
    if not key and not bearer:
        return None
    auth: Headers = (("x-api-key", key),) if key else ()
    auth += (("authorization", f"Bearer {bearer}"),) if bearer else ()
    auth += _custom_headers(env.get("ANTHROPIC_CUSTOM_HEADERS", ""))
    upstream = Upstream(_base(env.get("ANTHROPIC_BASE_URL") or ANTHROPIC), auth)
    given = {"ANTHROPIC_API_KEY": "{token}", "ANTHROPIC_BASE_URL": "{gateway}/anthropic"}
    withheld = ("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS")
    return Route({"anthropic": upstream}, given, withheld)


def _codex(env: Env, _: str) -> Route | None:
    from hypervisor.agents.gateway.login_files import codex_key  # most runs are of other agents

    key = codex_key(env)
    return _openai(env, key, ("OPENAI_API_KEY", "CODEX_API_KEY")) if key else None


def _codex_acp(env: Env, model: str) -> Route | None:
    """The bridge of codex reads a variable with configuration, which comes before its file."""
    from hypervisor.agents.gateway.login_files import json_object

    config = json_object(env.get(CODEX_CONFIG, ""))
    if "model_provider" in config:  # which may have a key of its own
        return None
    address = config.pop("openai_base_url", None) or env.get("OPENAI_BASE_URL", "")
    route = _codex({**env, "OPENAI_BASE_URL": str(address)}, model)
    if route is None or CODEX_CONFIG not in env:
        return route
    return route._replace(given={**route.given, CODEX_CONFIG: json.dumps(config)})


def _qwen(env: Env, _: str) -> Route | None:
    key = env.get("OPENAI_API_KEY")
    return _openai(env, key, ("OPENAI_API_KEY",)) if key else None


def _openai(env: Env, key: str, names: tuple[str, ...]) -> Route:
    given = {**dict.fromkeys(names, "{token}"), "OPENAI_BASE_URL": "{gateway}/openai"}
    address = _base(env.get("OPENAI_BASE_URL") or OPENAI)
    upstream = Upstream(address, (("authorization", f"Bearer {key}"),))
    return Route({"openai": upstream}, given, ())


def _gemini(env: Env, _: str) -> Route | None:
    key = env.get("GEMINI_API_KEY")
    if not key or env.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("1", "true"):
        return None
    address = _base(env.get("GOOGLE_GEMINI_BASE_URL") or GOOGLE)
    given = {"GEMINI_API_KEY": "{token}", "GOOGLE_GEMINI_BASE_URL": "{gateway}/gemini"}
    return Route({"gemini": Upstream(address, (("x-goog-api-key", key),))}, given, ())


def _copilot(env: Env, _: str) -> Route | None:
    """With a provider of the user's own; an account at GitHub is a subscription."""
    key, base = env.get("COPILOT_PROVIDER_API_KEY"), env.get("COPILOT_PROVIDER_BASE_URL")
    kind = env.get("COPILOT_PROVIDER_TYPE") or "openai"
    if not key or not base or kind not in ("openai", "anthropic"):
        return None
    auth = ("x-api-key", key) if kind == "anthropic" else ("authorization", f"Bearer {key}")
    given = {
        "COPILOT_PROVIDER_API_KEY": "{token}",
        "COPILOT_PROVIDER_BASE_URL": "{gateway}/copilot",
    }
    return Route({"copilot": Upstream(_base(base), (auth,))}, given, ())


def _opencode(env: Env, model: str) -> Route | None:
    from hypervisor.agents.gateway import opencode_route

    found = opencode_route.find_providers(env, model)
    if found is None:
        return None
    upstreams = {
        f"{opencode_route.PATH}{provider.id}": Upstream(
            provider.address, provider.headers, provider.key
        )
        for provider in found.providers
    }
    config = opencode_route.config_text(found, "{gateway}", "{token}")
    return Route(upstreams, {"OPENCODE_CONFIG_CONTENT": config}, ("OPENCODE_AUTH_CONTENT",))


_ROUTES: dict[str, Callable[[Env, str], Route | None]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
    "qwen": _qwen,
    "copilot": _copilot,
}
_OVER_ACP = {**_ROUTES, "codex": _codex_acp}


def _base(address: str) -> str:
    return address.strip().rstrip("/")


def _custom_headers(text: str) -> Headers:
    """`Name: value`, one per line, as claude reads them."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return tuple((name.strip().lower(), value.strip()) for name, _, value in pairs if name.strip())


def _without_proxy(env: Env) -> dict[str, str]:
    """A proxy of the user's could not reach our loopback."""
    return {
        name: ",".join(filter(None, (env.get(name, ""), LOOPBACK)))
        for name in ("NO_PROXY", "no_proxy")
    }
