"""Waiting for what happens, with a cursor."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Annotated, Any, Literal

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context as CallContext
from pydantic import Field
from typing_extensions import TypedDict

from hypervisor.batches import wait
from hypervisor.mcp.answers import filled, without_empty
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tool import CHANGE, Offer
from hypervisor.queue.event import Event

STUCK = (
    "what is left waits for {}, which is not done: update_task(move='retry') on that, or let the "
    "others go without it: update_task(after=[]) on them"
)


class News(TypedDict, total=False):
    events: list[dict[str, Any]]
    last: int
    more: bool
    finished: bool
    checkpoint: int
    stuck: str


class EventTools:
    def __init__(self, registry: ClaimRegistry) -> None:
        self.registry, self.hv = registry, registry.hv

    def offers(self) -> tuple[Offer, ...]:
        return (Offer(self.wait_for_events, CHANGE),)

    async def wait_for_events(
        self,
        ctx: CallContext[Any, Any],
        *,
        cursor: Annotated[str, Field(description="your name for your place in the log; durable")],
        ack: Annotated[int, Field(ge=0, description="`last` of what you have dealt with")] = 0,
        until: Literal["event", "finished"] = "event",
        batch: str = "",
        timeout: Annotated[float, Field(ge=0, le=wait.LONGEST_WAIT)] = 30,
        limit: Annotated[int, Field(ge=1, le=wait.MOST_EVENTS)] = 50,
        kinds: Annotated[Sequence[str], Field(description="* for all; else how tasks end")] = (),
    ) -> News:
        """Wait for what happens (task ended, checkpoint, pause, budget). Events come again until
        you ack them, never after; an empty list at the timeout: call again."""
        chosen = () if "*" in kinds else tuple(kinds) or wait.NEWS
        in_thread = anyio.to_thread.run_sync
        asked = wait.Wait(cursor, until, batch or None, chosen, limit)
        wanted = await in_thread(wait.check_wait, self.hv, asked)
        stands = await in_thread(wait.acknowledge, self.hv, cursor, ack or None)
        found, deadline = wait.News((), stands), monotonic() + timeout
        while True:
            before = found
            found = await in_thread(wait.look, self.hv, wanted, found)
            if len(found.events) != len(before.events):
                await ctx.report_progress(len(found.events), message=found.events[-1].kind)
            if wait.is_enough(wanted, found) or monotonic() >= deadline:
                return _news(found)
            await anyio.sleep(wait.POLL)


def _news(found: wait.News) -> News:
    return filled(
        News,
        last=found.last,
        more=found.more or None,
        finished=found.finished,
        checkpoint=found.checkpoint or None,
        stuck=STUCK.format(found.stuck) if found.stuck else "",
    ) | News(events=[_event(each) for each in found.events])


def _event(event: Event) -> dict[str, Any]:
    return without_empty(
        number=event.seq,
        at=event.at,
        kind=event.kind,
        task=event.task,
        batch=event.batch,
        state=event.state,
        by=event.actor,
        data=event.data,
    )
