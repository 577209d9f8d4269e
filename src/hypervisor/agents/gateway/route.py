"""Routes: where the calls of an agent go, with which key, and what the agent is given instead.

Only an API key can be kept from an agent. A login by subscription has no route: it stays
with its program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from hypervisor.agents.profile import AgentProfile

Env = Mapping[str, str]
Headers = tuple[tuple[str, str], ...]
# The format of an answer; "" for calls that cost nothing.
Wire = Literal["messages", "responses", "chat", "gemini", ""]

ANTHROPIC = "https://api.anthropic.com"
OPENAI = "https://api.openai.com/v1"
GOOGLE = "https://generativelanguage.googleapis.com"
LOOPBACK = "127.0.0.1"
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


class Route(NamedTuple):
    """`path` is the first part of the path at the gateway, `upstream` the address it stands for.
    `auth` holds the key. `given` is what the agent gets: variables with {address} and {token}."""

    path: str
    upstream: str
    auth: Headers
    given: Mapping[str, str]
    withheld: tuple[str, ...]  # variables that it does not get

    def env(self, env: Env, address: str, token: str) -> dict[str, str]:
        """The environment of the user with the gateway in place of the key."""
        kept = {name: value for name, value in env.items() if name not in self.withheld}
        address = f"{address}/{self.path}"
        given = {
            name: text.format(address=address, token=token) for name, text in self.given.items()
        }
        return kept | given | _without_proxy(env)


def route_of(profile: AgentProfile, user_env: Env) -> Route | None:
    """None if the agent has no API key that could be kept from it."""
    env = {**user_env, **profile.env}
    find = _ROUTES.get(profile.stream)
    return find(env) if find else None


def wire_of(method: str, path: str) -> Wire | None:
    """None for calls that the gateway does not pass on: what they cost could not be counted."""
    if ".." in path.split("/"):
        return None
    if method == "POST":
        paid = next((wire for end, wire in _PAID if path.endswith(end)), None)
        return "" if paid is None and path.endswith(_FREE) else paid
    return "" if method == "GET" and "models" in path.split("/")[-2:] else None


def _claude(env: Env) -> Route | None:
    key, bearer = env.get("ANTHROPIC_API_KEY"), env.get("ANTHROPIC_AUTH_TOKEN")
    if not key and not bearer:
        return None
    auth: Headers = (("x-api-key", key),) if key else ()
    auth += (("authorization", f"Bearer {bearer}"),) if bearer else ()
    return Route(
        "anthropic",
        _base(env.get("ANTHROPIC_BASE_URL") or ANTHROPIC),
        (*auth, *_custom_headers(env.get("ANTHROPIC_CUSTOM_HEADERS", ""))),
        {"ANTHROPIC_API_KEY": "{token}", "ANTHROPIC_BASE_URL": "{address}"},
        ("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS"),
    )


def _codex(env: Env) -> Route | None:
    key = env.get("CODEX_API_KEY") or env.get("OPENAI_API_KEY")
    return _openai(env, key, ("OPENAI_API_KEY", "CODEX_API_KEY")) if key else None


def _qwen(env: Env) -> Route | None:
    key = env.get("OPENAI_API_KEY")
    return _openai(env, key, ("OPENAI_API_KEY",), ("DASHSCOPE_API_KEY",)) if key else None


def _openai(env: Env, key: str, names: tuple[str, ...], withheld: tuple[str, ...] = ()) -> Route:
    given = {**dict.fromkeys(names, "{token}"), "OPENAI_BASE_URL": "{address}"}
    upstream = _base(env.get("OPENAI_BASE_URL") or OPENAI)
    return Route("openai", upstream, (("authorization", f"Bearer {key}"),), given, withheld)


def _gemini(env: Env) -> Route | None:
    key = env.get("GEMINI_API_KEY")
    if not key or env.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("1", "true"):
        return None
    return Route(
        "gemini",
        _base(env.get("GOOGLE_GEMINI_BASE_URL") or GOOGLE),
        (("x-goog-api-key", key),),
        {"GEMINI_API_KEY": "{token}", "GOOGLE_GEMINI_BASE_URL": "{address}"},
        ("GOOGLE_API_KEY",),
    )


def _copilot(env: Env) -> Route | None:
    """With a provider of the user's own; an account at GitHub is a subscription."""
    key, base = env.get("COPILOT_PROVIDER_API_KEY"), env.get("COPILOT_PROVIDER_BASE_URL")
    kind = env.get("COPILOT_PROVIDER_TYPE") or "openai"
    if not key or not base or kind not in ("openai", "anthropic"):
        return None
    auth = ("x-api-key", key) if kind == "anthropic" else ("authorization", f"Bearer {key}")
    given = {"COPILOT_PROVIDER_API_KEY": "{token}", "COPILOT_PROVIDER_BASE_URL": "{address}"}
    return Route("copilot", _base(base), (auth,), given, ())


_ROUTES: dict[str, Callable[[Env], Route | None]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "qwen": _qwen,
    "copilot": _copilot,
}


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
