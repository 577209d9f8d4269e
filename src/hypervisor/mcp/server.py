"""Puts the server together: which tools a profile offers, with prompts and resources."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hypervisor import __version__
from hypervisor.agents.secrets import TokenHider
from hypervisor.core.errors import InvalidInput
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.profiles import ALL, NAME, PROFILES, SUPERVISOR, TITLE, WORKER, instructions
from hypervisor.mcp.prompts import add_prompts
from hypervisor.mcp.resources import Followed, add_resources
from hypervisor.mcp.tool import Offer, ToolServer
from hypervisor.mcp.tools.batches import BatchTools
from hypervisor.mcp.tools.checkpoints import CheckpointTools
from hypervisor.mcp.tools.events import EventTools
from hypervisor.mcp.tools.hive import HiveTools
from hypervisor.mcp.tools.merges import MergeTools
from hypervisor.mcp.tools.tasks import TaskTools
from hypervisor.mcp.tools.worker import WorkerTools
from hypervisor.serving.refusals import Refusals


def build(profile: str, registry: ClaimRegistry) -> ToolServer:
    """A server with the tools of a profile, its prompts and resources."""
    followed = Followed(registry.hv)

    @asynccontextmanager
    async def watching(_: object) -> AsyncIterator[None]:
        async with followed.watching():
            yield

    server = ToolServer(
        NAME,
        title=TITLE,
        version=__version__,
        instructions=instructions(profile),
        log_level="WARNING",
        subscriptions=followed,
        lifespan=watching,
    )
    server.registry = registry
    server.offer(offers_of(profile, registry))
    server.hider = TokenHider(registry.given.hide)
    server.refusals = Refusals(registry.report_refusals)
    if profile != WORKER:
        add_prompts(server)
        add_resources(server, registry)
    return server


def offers_of(profile: str, registry: ClaimRegistry) -> tuple[Offer, ...]:
    """The tools of a profile."""
    worker, tasks, hive = WorkerTools(registry).offers(), TaskTools(registry), HiveTools(registry)
    if profile == WORKER:
        return (*worker, *hive.offers(), *tasks.reading())
    supervisor = (
        *tasks.reading(),
        *tasks.offers(),
        *BatchTools(registry).offers(),
        *EventTools(registry).offers(),
        *CheckpointTools(registry).offers(),
        *MergeTools(registry).offers(),
        *hive.offers(),
        *hive.reports(),
    )
    if profile == SUPERVISOR:
        return supervisor
    if profile == ALL:
        return (*worker, *supervisor)
    raise InvalidInput(f"unknown profile {profile!r}: use {', '.join(PROFILES)}.")
