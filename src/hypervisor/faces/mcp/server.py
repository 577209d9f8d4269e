"""Puts the server together: which tools a profile offers, with prompts and resources."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from hypervisor.domain.agents.hiding import Hider
from hypervisor.domain.errors import HypervisorError, InvalidInput
from hypervisor.domain.version import VERSION
from hypervisor.faces.mcp.desk import Desk
from hypervisor.faces.mcp.profiles import (
    ALL,
    NAME,
    PROFILES,
    SUPERVISOR,
    TITLE,
    WORKER,
    instructions,
)
from hypervisor.faces.mcp.prompts import add_prompts
from hypervisor.faces.mcp.resources import Followed, add_resources
from hypervisor.faces.mcp.tool import Offer, ToolServer
from hypervisor.faces.mcp.tools_batches import BatchTools
from hypervisor.faces.mcp.tools_checkpoints import checkpoint_offers
from hypervisor.faces.mcp.tools_events import EventTools
from hypervisor.faces.mcp.tools_hive import HiveTools
from hypervisor.faces.mcp.tools_tasks import TaskTools
from hypervisor.faces.mcp.tools_worker import WorkerTools


def build(profile: str, desk: Desk) -> ToolServer:
    """A server with the tools of a profile, its prompts and resources."""
    followed = Followed(desk.hv)

    @asynccontextmanager
    async def watching(_: object) -> AsyncIterator[None]:
        async with followed.watching():
            yield

    server = ToolServer(
        NAME, title=TITLE, version=VERSION, instructions=instructions(profile),
        log_level="WARNING", subscriptions=followed, lifespan=watching,
    )  # fmt: skip
    server.offer(offers_of(profile, desk))
    server.hider = Hider(desk.given.hide)
    if profile != WORKER:
        with suppress(HypervisorError):  # ready before the first spawn, which shall be quick
            _ = desk.hv.equipment
        add_prompts(server)
        add_resources(server, desk.hv)
    return server


def offers_of(profile: str, desk: Desk) -> tuple[Offer, ...]:
    """The tools of a profile."""
    worker, tasks, hive = WorkerTools(desk).offers(), TaskTools(desk), HiveTools(desk)
    if profile == WORKER:
        return (*worker, *hive.offers(), *tasks.reading())
    supervisor = (
        *tasks.reading(), *tasks.offers(), *BatchTools(desk).offers(),
        *EventTools(desk).offers(), *checkpoint_offers(desk), *hive.offers(), *hive.reports(),
    )  # fmt: skip
    if profile == SUPERVISOR:
        return supervisor
    if profile == ALL:
        return (*worker, *supervisor)
    raise InvalidInput(f"unknown profile {profile!r}: use {', '.join(PROFILES)}.")
