"""The stream of events: the log is read once for all browsers, and only while one is listening.

A message names what has changed (`task:ID`, `batch:ID`, `kind:NAME`), never any text, and carries
the number of its last event. A browser that reconnects continues after the number it has seen. One
that missed many events gets a single message instead: fetch everything again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable

from anyio import to_thread

from hypervisor.core.errors import HypervisorError
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context
from hypervisor.queue.event import Event
from hypervisor.queue.queries import end_of_log, events

INTERVAL = 0.4  # seconds between two looks at the log
# … after one that found something: while tasks end all the time, tabs fetch no more often. They
# must still be less than a second behind.
BUSY_INTERVAL = 0.6
MAX_BACKLOG = 500
PING = 15.0  # seconds without a message after which the connection is tried
RETRY_MS = 1_000  # after which a browser reconnects


class Message(NamedTuple):
    last: int
    topics: tuple[str, ...]  # empty: everything may have changed

    def text(self) -> str:
        """As an event of the stream."""
        return f"id: {self.last}\ndata: {self.json()}\n\n"

    def json(self) -> str:
        return json.dumps({"last": self.last, "topics": self.topics}, separators=(",", ":"))


def message(found: Iterable[Event]) -> Message:
    topics: dict[str, None] = {}
    last = 0
    for event in found:
        last = event.seq
        topics[f"kind:{event.kind}"] = None
        if event.task:
            topics[f"task:{event.task}"] = None
        if event.batch:
            topics[f"batch:{event.batch}"] = None
    return Message(last, tuple(topics))


def missed(hv: Context, after: int) -> Message | None:
    """What happened after a number; None: nothing."""
    found = events(hv, after, MAX_BACKLOG + 1)
    if len(found) > MAX_BACKLOG:
        return Message(end_of_log(hv), ())
    return message(found) if found else None


class Feed:
    """Hands what one reader finds to all browsers of this server."""

    def __init__(
        self,
        hv: Context,
        interval: float = INTERVAL,
        busy_interval: float = BUSY_INTERVAL,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """`before` is called before browsers hear of a change."""
        self._hv, self._before = hv, before
        self._interval, self._busy_interval = interval, busy_interval
        self._queues: set[asyncio.Queue[Message | None]] = set()
        self._reader: asyncio.Task[None] | None = None
        self._last = 0
        self._closed = False

    @property
    def is_reading(self) -> bool:
        return self._reader is not None

    async def last(self) -> int:
        """The number of an event that pages made from now on already show."""
        if self._reader and self._last:
            return self._last
        return await to_thread.run_sync(end_of_log, self._hv)

    async def follow(
        self, after: int | None, is_allowed: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[str]:
        """The stream for one browser, from the event after this one on. It ends when the browser
        is not allowed to read any more: a link expires."""
        yield f"retry: {RETRY_MS}\n\n"
        queue: asyncio.Queue[Message | None] = asyncio.Queue()
        seen = await self._join(queue, after)
        try:
            if found := await to_thread.run_sync(missed, self._hv, seen):
                seen = found.last
                self._before()
                yield found.text()
            while not self._closed:
                try:
                    found = await asyncio.wait_for(queue.get(), PING)
                except TimeoutError:
                    yield ": ping\n\n"
                    continue
                if found is None or not is_allowed():
                    return
                if found.last > seen:
                    seen = found.last
                    yield found.text()
        finally:
            self._leave(queue)

    def close(self) -> None:
        """End all streams, so that the server can end."""
        self._closed = True
        for queue in self._queues:
            queue.put_nowait(None)

    async def _join(self, queue: asyncio.Queue[Message | None], after: int | None) -> int:
        """Listen first, then look back: nothing falls between the two."""
        if self._reader is None:
            self._last = await to_thread.run_sync(end_of_log, self._hv)
        self._queues.add(queue)
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        return self._last if after is None else after

    def _leave(self, queue: asyncio.Queue[Message | None]) -> None:
        self._queues.discard(queue)
        if not self._queues and self._reader:
            self._reader.cancel()
            self._reader = None

    async def _read(self) -> None:
        pause = self._interval
        while True:
            await asyncio.sleep(pause)
            found = await self._look(missed, self._last)
            pause = self._busy_interval if found else self._interval
            if found is None:
                continue
            self._last = found.last
            self._before()
            for queue in self._queues:
                queue.put_nowait(found)

    async def _look(
        self, look: Callable[[Context, int], Message | None], after: int
    ) -> Message | None:
        try:
            return await to_thread.run_sync(look, self._hv, after)
        except HypervisorError:  # such as a database that is being restarted
            return None
