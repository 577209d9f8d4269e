"""A worker's use of the gateway: whether its agent has to call its model through it, and how."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from hypervisor.agents.gateway.route import LOOPBACK, Route, route_of
from hypervisor.agents.gateway.token import SpendToken, digest_of, new_code
from hypervisor.agents.installed import Calls

if TYPE_CHECKING:
    from hypervisor.agents.config import AgentSettings
    from hypervisor.agents.profile import AgentProfile
    from hypervisor.runs.processes.launcher import LocalLauncher
    from hypervisor.runs.spec import AgentSpec

PATIENCE = 1.0  # seconds
CALLS_TEXT: dict[Calls, str] = {
    "gateway": "through the gateway, which keeps the key",
    "key": "direct, with your key (--gateway keeps it)",
    "login": "direct, with its own login",
    "": "direct, as the program is set up",
}


def uses_gateway(
    spec: AgentSpec, profile: AgentProfile, settings: AgentSettings, user_env: Mapping[str, str]
) -> bool:
    """Only with an API key, and unless the batch or config.toml turns it off."""
    wanted = settings.gateway if spec.gateway is None else spec.gateway
    return wanted and route_of(profile, user_env) is not None


def calls_of(
    profile: AgentProfile,
    settings: AgentSettings,
    user_env: Mapping[str, str],
    spec: AgentSpec | None = None,
) -> Calls:
    """How an agent calls its model. Without a spec: unless a run says otherwise."""
    if route_of(profile, user_env) is None:
        has_login = profile.keys and not any(user_env.get(name) for name in profile.keys)
        return "login" if has_login else ""
    wanted = settings.gateway if spec is None or spec.gateway is None else spec.gateway
    return "gateway" if wanted else "key"


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
    route = route_of(profile, user_env)
    return GatewayAccess(launcher, route) if route else None
