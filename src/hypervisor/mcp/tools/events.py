"""The tool that waits for events, with a cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from hypervisor.queue.queries import batch_names

STUCK = (
    "the remaining tasks wait for {}, which is not done: retry it with "
    "update_task(move='retry'), or drop the dependency with update_task(after=[]) on the others"
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
        cursor: Annotated[str, Field(description="name of your position in the log")],
        ack: Annotated[int, Field(ge=0, description="`last` of the events you have handled")] = 0,
        until: Literal["event", "finished"] = "event",
        batch: str = "",
        timeout: Annotated[float, Field(ge=0, le=wait.MAX_WAIT)] = 30,
        limit: Annotated[int, Field(ge=1, le=wait.MAX_EVENTS)] = 50,
        kinds: Annotated[
            Sequence[str], Field(description="event kinds; * for all (default: ends of tasks)")
        ] = (),
    ) -> News:
        """Wait for events (task ended, checkpoint, pause, budget). Events are repeated until you
        ack them; an empty list means a timeout: call again."""
        chosen = () if "*" in kinds else tuple(kinds) or wait.NEWS
        in_thread = anyio.to_thread.run_sync
        request = wait.Wait(cursor, until, batch or None, chosen, limit)
        request = await in_thread(wait.check_wait, self.hv, request)
        position = await in_thread(wait.acknowledge, self.hv, cursor, ack or None)
        news, deadline = wait.News((), position), monotonic() + timeout
        while True:
            before = news
            news = await in_thread(wait.look, self.hv, request, news)
            if len(news.events) != len(before.events):
                await ctx.report_progress(len(news.events), message=news.events[-1].kind)
            if wait.is_enough(request, news) or monotonic() >= deadline:
                ids = [event.batch for event in news.events]
                return _answer(news, await in_thread(batch_names, self.hv, ids))
            await anyio.sleep(wait.POLL)


def _answer(news: wait.News, names: Mapping[str, str]) -> News:
    return filled(
        News,
        last=news.last,
        more=news.more or None,
        finished=news.finished,
        checkpoint=news.checkpoint or None,
        stuck=STUCK.format(news.stuck) if news.stuck else "",
    ) | News(events=[_event(event, names) for event in news.events])


def _event(event: Event, names: Mapping[str, str]) -> dict[str, Any]:
    return without_empty(
        number=event.seq,
        at=event.at,
        kind=event.kind,
        task=event.task,
        batch=names.get(event.batch, event.batch),
        state=event.state,
        by=event.actor,
        data=event.data,
    )
