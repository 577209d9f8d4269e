"""What config.toml says about agents, and what applies without it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.core.records import NamedTuple

if TYPE_CHECKING:
    from hypervisor.agents.profile import AgentProfile, Price
    from hypervisor.agents.routing import Route

GATEWAY = True  # unless config.toml or the run says otherwise


class AgentSettings(NamedTuple):
    """Money is in millionths. `routes` are the user's own; routing.DEFAULTS come after them."""

    profiles: Mapping[str, AgentProfile] = BUILTIN
    routes: tuple[Route, ...] = ()
    prices: Mapping[str, Price] = MappingProxyType({})
    day_budget: int | None = None
    day_tokens: int | None = None
    gateway: bool = GATEWAY
