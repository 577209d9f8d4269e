"""Resources: batches, tasks and outputs that a client can read or follow by address."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated, ServerEvent

from hypervisor.core.errors import HypervisorError
from hypervisor.mcp.answers import without_empty
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tools.hive import shown
from hypervisor.mcp.tools.tasks import whole
from hypervisor.queue import queries
from hypervisor.queue.context import Context
from hypervisor.queue.sql.queries import end_of_log

if TYPE_CHECKING:
    from hypervisor.skills.skills import SkillView

Answer = TypeVar("Answer")
JSON, TEXT = "application/json", "text/plain"
MAX_BATCHES = 100
MAX_OUTPUT = 200_000
LOOK = 0.25  # seconds between checks while there are subscribers
SUMMARY = "hypervisor://batches/{batch}/summary"
TASK = "hypervisor://tasks/{task}"
OUTPUT = "hypervisor://tasks/{task}/output"
FINDINGS = "hypervisor://branches/{branch}/findings"
MAX_FINDINGS = 50


class Followed(InMemorySubscriptionBus):
    """Notifies subscribers that a resource has changed, as a hint: to miss nothing, wait with a
    cursor."""

    def __init__(self, hv: Context) -> None:
        super().__init__()
        self._hv, self._last = hv, 0

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        if not self._listeners:
            with suppress(HypervisorError):
                self._last = end_of_log(self._hv.store)
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
                continue  # no one is watching: nothing has to be read
            with suppress(HypervisorError):  # the store may be back at the next look
                events = await anyio.to_thread.run_sync(queries.events, self._hv, self._last)
                self._last = events[-1].seq if events else self._last
                changed = {SUMMARY.format(batch=event.batch) for event in events if event.batch}
                changed |= {TASK.format(task=event.task) for event in events if event.task}
                for uri in sorted(changed):
                    await self.publish(ResourceUpdated(uri))


def add_resources(server: MCPServer[Any], registry: ClaimRegistry) -> None:
    """Offer the resources."""
    hv = registry.hv

    @server.resource("hypervisor://batches", name="batches", mime_type=JSON)
    def batches() -> str:
        """The newest batches."""
        newest = _answered(lambda: queries.batches(hv, MAX_BATCHES))
        return json.dumps([{"batch": batch.name, "id": batch.id} for batch in newest])

    @server.resource("hypervisor://skills", name="skills", mime_type=JSON)
    def list_skills() -> str:
        """The skills of this project, its user and Hypervisor; `hv run SKILL PATH` runs one."""
        from hypervisor.skills.skills import skills

        known = _answered(lambda: skills(hv, registry.skill_places()))
        usable = [_skill(skill) for skill in known if not skill.problem]
        return json.dumps(usable, ensure_ascii=False)

    @server.resource(SUMMARY, name="batch summary", mime_type=JSON)
    def summary(batch: str) -> str:
        """The summary of a batch, by its id or name."""
        from hypervisor.batches import summary as summaries

        totals = _answered(lambda: summaries.summary(hv, batch, tasks=False))
        return json.dumps({**totals._asdict(), "tasks": None, "chunks": len(totals.chunks)})

    @server.resource(TASK, name="task", mime_type=JSON)
    def task(task: str) -> str:
        """A task with its result and receipts."""
        fields = whole(_answered(lambda: queries.show(hv, task)))
        return json.dumps(without_empty(**fields), ensure_ascii=False)

    @server.resource(FINDINGS, name="findings", mime_type=JSON)
    def findings(branch: str) -> str:
        """The newest findings of a branch."""
        from hypervisor.hive.recall import recall

        newest = _answered(lambda: recall(hv, branch=branch, limit=MAX_FINDINGS, reader=""))
        return json.dumps([shown(known) for known in newest], ensure_ascii=False)

    @server.resource(OUTPUT, name="task output", mime_type=TEXT)
    def output(task: str) -> str:
        """The end of the output of its last attempt."""
        return _answered(lambda: _tail(hv, task)).decode("utf-8", "replace")


def _skill(view: SkillView) -> dict[str, Any]:
    record = view.record
    return without_empty(
        skill=view.name,
        description=view.description,
        origin=view.kind,
        runs=record.runs,
        tasks=record.tasks,
        success=record.success,
    )


def _tail(hv: Context, task: str) -> bytes:
    from hypervisor.runs import results

    task_id = hv.resolve(task)
    number = results.latest_output(hv, task_id)
    size = hv.outputs.size(task_id, number) or 0
    return results.output(hv, task_id, number, max(size - MAX_OUTPUT, 0), MAX_OUTPUT)


def _answered(read: Callable[[], Answer]) -> Answer:
    try:
        return read()
    except HypervisorError as error:
        raise ResourceError(str(error)) from error
