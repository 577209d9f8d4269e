"""Resources: batches, tasks and outputs that a client can read or follow by address."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated, ServerEvent

from hypervisor.core.errors import HypervisorError
from hypervisor.hive.recall import recall
from hypervisor.mcp.answers import without_empty
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tools.hive import shown
from hypervisor.mcp.tools.tasks import whole
from hypervisor.queue import look
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.runs import run
from hypervisor.skills import skills

Answer = TypeVar("Answer")
JSON, TEXT = "application/json", "text/plain"
MOST_BATCHES = 100
MOST_OUTPUT = 200_000
LOOK = 0.25  # seconds between looks for those who follow a resource
SUMMARY = "hypervisor://batches/{batch}/summary"
TASK = "hypervisor://tasks/{task}"
OUTPUT = "hypervisor://tasks/{task}/output"
FINDINGS = "hypervisor://branches/{branch}/findings"
MOST_FINDINGS = 50


class Followed(InMemorySubscriptionBus):
    """Tells those who follow a resource that it has changed: a hint. Who must miss nothing
    waits with a cursor."""

    def __init__(self, hv: Context) -> None:
        super().__init__()
        self._hv, self._last = hv, 0

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        if not self._listeners:
            with suppress(HypervisorError):
                self._last = queries.end_of_log(self._hv.store)
        return super().subscribe(listener)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch)
            yield
            group.cancel_scope.cancel()

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(LOOK)
            if not self._listeners:
                continue  # nobody looks: nothing has to be read
            with suppress(HypervisorError):  # the store may be back at the next look
                events = await anyio.to_thread.run_sync(look.events, self._hv, self._last)
                self._last = events[-1].seq if events else self._last
                changed = {SUMMARY.format(batch=each.batch) for each in events if each.batch}
                changed |= {TASK.format(task=each.task) for each in events if each.task}
                for uri in sorted(changed):
                    await self.publish(ResourceUpdated(uri))


def add_resources(server: MCPServer[Any], registry: ClaimRegistry) -> None:
    """Offer the resources."""
    hv = registry.hv

    @server.resource("hypervisor://batches", name="batches", mime_type=JSON)
    def batches() -> str:
        """The newest batches."""
        found = _told(lambda: look.batches(hv, MOST_BATCHES))
        return json.dumps([{"batch": each.name, "id": each.id} for each in found])

    @server.resource("hypervisor://skills", name="skills", mime_type=JSON)
    def kept_runs() -> str:
        """The skills of this project, its user and Hypervisor; `hv run SKILL PATH` runs one."""
        known = _told(lambda: skills.skills(hv, registry.skill_places()))
        usable = [_skill(skill) for skill in known if not skill.problem]
        return json.dumps(usable, ensure_ascii=False)

    @server.resource(SUMMARY, name="batch summary", mime_type=JSON)
    def summary(batch: str) -> str:
        """What came of a batch, by its id or name."""
        found = _told(lambda: run.summary(hv, batch, tasks=False))
        return json.dumps({**found._asdict(), "tasks": None, "chunks": len(found.chunks)})

    @server.resource(TASK, name="task", mime_type=JSON)
    def task(task: str) -> str:
        """A task with its result and receipts."""
        found = whole(_told(lambda: look.show(hv, task)))
        return json.dumps(without_empty(**found), ensure_ascii=False)

    @server.resource(FINDINGS, name="findings", mime_type=JSON)
    def findings(branch: str) -> str:
        """The newest that a branch knows."""
        found = _told(lambda: recall(hv, branch=branch, limit=MOST_FINDINGS))
        return json.dumps([shown(known) for known in found], ensure_ascii=False)

    @server.resource(OUTPUT, name="task output", mime_type=TEXT)
    def output(task: str) -> str:
        """The end of what its last attempt printed."""
        return _told(lambda: _tail(hv, task)).decode("utf-8", "replace")


def _skill(each: skills.SkillView) -> dict[str, Any]:
    record = each.record
    return without_empty(
        skill=each.name,
        description=each.description,
        origin=each.kind,
        runs=record.runs,
        tasks=record.tasks,
        success=record.success,
    )


def _tail(hv: Context, task: str) -> bytes:
    found = hv.resolve(task)
    number = run.latest_output(hv, found)
    size = hv.outputs.size(found, number) or 0
    return run.output(hv, found, number, max(size - MOST_OUTPUT, 0), MOST_OUTPUT)


def _told(ask: Callable[[], Answer]) -> Answer:
    try:
        return ask()
    except HypervisorError as error:
        raise ResourceError(str(error)) from error
