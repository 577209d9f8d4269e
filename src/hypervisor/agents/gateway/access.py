"""A worker's use of the gateway: whether its agent has to call its model through it, and how."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hypervisor.agents.gateway.route import LOOPBACK, Route, route_of
from hypervisor.agents.gateway.token import SpendToken, digest_of, new_code
from hypervisor.agents.installed import Calls
from hypervisor.core.records import NamedTuple

if TYPE_CHECKING:
    from hypervisor.agents.agent_settings import AgentSettings
    from hypervisor.agents.profile import AgentProfile
    from hypervisor.runs.processes.launcher import LocalLauncher
    from hypervisor.runs.spec import AgentSpec

PATIENCE = 1.0  # seconds
LOGIN = "with its own login: a subscription has no key for the gateway to keep"
UNKNOWN = "no key that the gateway knows"
OFF = {
    "run": "--no-gateway",
    "agent": "gateway = false in its table of config.toml",
    "config": "[gateway] enabled = false in config.toml",
}


class CallWay(NamedTuple):
    """How an agent calls its model, and why not through the gateway."""

    calls: Calls
    why: str = ""

    @property
    def short(self) -> str:
        return {"gateway": "through the gateway", "key": "with your key"}.get(self.calls, "")

    def __str__(self) -> str:
        if self.calls == "gateway":
            return "through the gateway, which keeps the key"
        return f"direct: {self.why}"


def uses_gateway(
    spec: AgentSpec, profile: AgentProfile, settings: AgentSettings, user_env: Mapping[str, str]
) -> bool:
    """Only with an API key, and unless the batch or config.toml turns it off."""
    return (
        not _turned_off(profile, settings, spec)
        and route_of(profile, user_env, spec.model) is not None
    )


def call_way(
    profile: AgentProfile,
    settings: AgentSettings,
    user_env: Mapping[str, str],
    spec: AgentSpec | None = None,
) -> CallWay:
    """How an agent calls its model. Without a spec: unless a run says otherwise."""
    if route_of(profile, user_env, spec.model if spec else "") is None:
        return CallWay("login", LOGIN) if _has_login(profile, user_env) else CallWay("", UNKNOWN)
    off = _turned_off(profile, settings, spec)
    return CallWay("key", f"with your key ({OFF[off]})") if off else CallWay("gateway")


def _turned_off(profile: AgentProfile, settings: AgentSettings, spec: AgentSpec | None) -> str:
    """By what; "" if it is not. The run decides first."""
    if spec is not None and spec.gateway is not None:
        return "" if spec.gateway else "run"
    if not profile.gateway:
        return "agent"
    return "" if settings.gateway else "config"


def _has_login(profile: AgentProfile, user_env: Mapping[str, str]) -> bool:
    home = user_env.get("HOME", "")
    has_file = any(os.path.exists(os.path.join(home, name)) for name in profile.login if home)
    return has_file or bool(profile.keys and not any(user_env.get(name) for name in profile.keys))


class Access(NamedTuple):
    """What one session is given: the route, the address of the gateway and a token."""

    route: Route
    address: str
    token: str


class GatewayAccess:
    """Grants access to the sessions of a worker."""

    def __init__(self, launcher: LocalLauncher, route: Route) -> None:
        self._launcher, self._route = launcher, route
        self._code = ""

    def is_ready(self) -> bool:
        """Whether the supervisor has opened the gateway's port."""
        port = self._launcher.gateway_port()
        try:
            socket.create_connection((LOOPBACK, port or 0), PATIENCE).close()
        except OSError:
            return False
        return True

    def new_code(self) -> str:
        """The digest of the next session's code, for its row."""
        self._code = new_code()
        return digest_of(self._code)

    def grant(self, session: str) -> Access:
        """To the session that was opened with the last code."""
        address = f"http://{LOOPBACK}:{self._launcher.gateway_port()}"
        return Access(self._route, address, str(SpendToken(session, self._code)))


def gateway_access(
    launcher: LocalLauncher,
    spec: AgentSpec,
    profile: AgentProfile,
    settings: AgentSettings,
    user_env: Mapping[str, str],
) -> GatewayAccess | None:
    """None if the agent calls its model itself."""
    if not uses_gateway(spec, profile, settings, user_env):
        return None
    route = route_of(profile, user_env, spec.model)
    return GatewayAccess(launcher, route) if route else None
