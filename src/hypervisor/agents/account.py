"""Whose quota a run of an agent uses up: the provider, and a short digest of the key."""

from __future__ import annotations

from collections.abc import Mapping

from hypervisor.agents.profile import AgentProfile

LOGIN = "login"


def account_of(profile: AgentProfile, env: Mapping[str, str]) -> str:
    """The digest tells keys apart and nothing else about them."""
    provider = profile.provider or profile.name
    values = [env[name] for name in profile.keys if env.get(name)]
    if not values:
        return f"{provider}:{LOGIN}"
    from hashlib import blake2b

    joined = "\0".join(values).encode("utf-8", "surrogateescape")
    return f"{provider}:{blake2b(joined, digest_size=4).hexdigest()}"
