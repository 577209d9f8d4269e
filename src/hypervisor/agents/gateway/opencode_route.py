"""The route of opencode, which may use several providers, each with a key of its own.

Its providers and keys are in two files of the user's and in the environment. Behind the gateway it
gets a configuration with the same providers, each at an address of the gateway; that has the last
word over all other configuration.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hypervisor.agents.gateway.login_files import file_in_home
from hypervisor.agents.json_fields import Object, member, text
from hypervisor.core.records import NamedTuple

AUTH = ".local/share/opencode/auth.json"
CONFIG = ".config/opencode/opencode.json"
PATH = "opencode."  # with the provider behind it, the first part of the path at the gateway
ID = re.compile(r"[a-z0-9_-]{1,64}", re.IGNORECASE)
PLACE = re.compile(r"\{(env|file):([^}]*)\}")
MAX_KEY = 4096
SECRET = re.compile("key|token|secret|password|credential", re.IGNORECASE)


class Known(NamedTuple):
    address: str
    variables: tuple[str, ...]


KNOWN = {
    "anthropic": Known("https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",)),
    "openai": Known("https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    "google": Known("https://generativelanguage.googleapis.com/v1beta", ("GEMINI_API_KEY",)),
    "openrouter": Known("https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",)),
    "opencode": Known("https://opencode.ai/zen/v1", ("OPENCODE_API_KEY",)),
}


class Provider(NamedTuple):
    """One that has a key. `config` is its entry in the configuration, without secrets."""

    id: str
    address: str
    key: str
    headers: tuple[tuple[str, str], ...]
    config: Object


class Found(NamedTuple):
    providers: tuple[Provider, ...]
    model: str
    config: Object  # the part of the user's that the agent gets


def find_providers(env: Mapping[str, str], model: str) -> Found | None:
    """None if opencode does not use a key, or it is unknown which."""
    login, config = file_in_home(env, AUTH), file_in_home(env, CONFIG)
    entries = member(config, "provider")
    names = [*entries, *login, *(name for name in KNOWN if name not in {*entries, *login})]
    found = [_provider(name, member(entries, name), login, env) for name in names]
    providers = tuple({p.id: p for p in found if p is not None}.values())
    model = model or text(config, "model")
    chosen = model.partition("/")[0]
    if chosen and chosen not in {provider.id for provider in providers}:
        return None
    has_login = any(text(member(login, name), "type") not in ("", "api") for name in login)
    if not providers or (has_login and not chosen):
        return None
    kept = {name: config[name] for name in ("model", "small_model") if text(config, name)}
    return Found(providers, model, kept)


def config_text(found: Found, address: str, token: str) -> str:
    """The configuration with the gateway in place of addresses and keys."""
    entries: dict[str, Any] = {}
    for provider in found.providers:
        options = {"baseURL": f"{address}/{PATH}{provider.id}", "apiKey": token}
        own = member(provider.config, "options")
        entries[provider.id] = {**provider.config, "options": {**own, **options}}
    ids = [provider.id for provider in found.providers]
    return json.dumps({**found.config, "provider": entries, "enabled_providers": ids})


def _provider(name: str, entry: Object, login: Object, env: Mapping[str, str]) -> Provider | None:
    options, saved = member(entry, "options"), member(login, name)
    known = KNOWN.get(name, Known("", ()))
    if not ID.fullmatch(name) or text(saved, "type") not in ("", "api"):
        return None
    address = _filled(text(options, "baseURL") or text(entry, "api"), env) or known.address
    keys = (
        _filled(text(options, "apiKey"), env),
        text(saved, "key"),
        *(env.get(variable, "") for variable in known.variables),
    )
    key = next(filter(None, keys), "")
    if not key or not address:
        return None
    headers = tuple(
        (str(header).lower(), _filled(str(value), env))
        for header, value in member(options, "headers").items()
    )
    return Provider(name, address.strip().rstrip("/"), key, headers, _without_secrets(entry))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_secrets(inner)
            for name, inner in value.items()
            if name != "headers" and not (isinstance(inner, str) and SECRET.search(name))
        }
    return value


def _filled(value: str, env: Mapping[str, str]) -> str:
    """With `{env:NAME}` and `{file:PATH}` replaced, as opencode does it."""

    def content(found: re.Match[str]) -> str:
        kind, name = found.groups()
        if kind == "env":
            return env.get(name, "")
        home = env.get("HOME", "")
        path = os.path.join(home, os.path.dirname(CONFIG), name.replace("~", home, 1))
        with suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
            return file.read(MAX_KEY).strip()
        return ""

    return PLACE.sub(content, value)
