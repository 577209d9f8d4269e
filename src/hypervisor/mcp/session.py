"""One client of the shared server: its description, its claims, its conversation with the SDK."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread
from anyio.abc import ObjectReceiveStream
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from hypervisor.core.errors import HypervisorError
from hypervisor.core.records import NamedTuple
from hypervisor.mcp import claims
from hypervisor.mcp.claims import ClaimRegistry, given_by
from hypervisor.mcp.pipe import CONTROL, GRACE
from hypervisor.mcp.server import build
from hypervisor.mcp.tool import ToolServer
from hypervisor.queue.context import Context

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream

Connect = Callable[..., Context]
HELLO_TIME = 30.0  # seconds
# For this client alone: what we start for it is not that attempt, and must not act for it.
FOR_US_ALONE = (
    "HV_TOKEN",
    "HV_KEEPER_PID",
    "HV_KEEPER_NAME",
    "HV_PULL",
    "HV_CAPABILITIES",
    "HV_HIDE",
)
logger = logging.getLogger(__name__)


class Hello(NamedTuple):
    """What an `hv mcp` says first."""

    tools: str
    store: str
    folder: str
    environment: Mapping[str, str]
    claims: dict[str, Any] | None  # held through another server, which died


class Incoming:
    """A client's lines, read as the SDK reads a file."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self.ended = reader, anyio.Event()

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> str:
        line = b""
        with suppress(OSError, ValueError):  # reset; longer than any line of ours
            line = await self._reader.readline()
        if not line:
            self.ended.set()
            raise StopAsyncIteration
        return line.decode("utf-8", "replace")


class Outgoing:
    """Lines to a client, written as the SDK writes a file."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer, self._loop = writer, asyncio.get_running_loop()

    async def write(self, text: str) -> None:
        self._writer.write(text.encode())

    async def flush(self) -> None:
        await self._writer.drain()

    def control(self, **order: Any) -> None:
        """Tell the pipe something. From any thread; it arrives before the answer of the call."""
        line = CONTROL + json.dumps(order).encode() + b"\n"
        self._loop.call_soon_threadsafe(self._writer.write, line)


class Readable(ObjectReceiveStream[SessionMessage | Exception]):
    """The messages of a client. What cannot be read is answered here: the SDK says nothing."""

    def __init__(
        self, source: ReadStream[SessionMessage | Exception], target: WriteStream[SessionMessage]
    ) -> None:
        self._source, self._target = source, target

    async def receive(self) -> SessionMessage | Exception:
        from hypervisor.mcp.unreadable import complaint

        while isinstance(message := await self._source.receive(), Exception):
            if answer := complaint(message):
                await self._target.send(SessionMessage(answer))
        return message

    async def aclose(self) -> None:
        await self._source.aclose()


class Session:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connect: Connect, pid: int
    ) -> None:
        self._reader, self._connect, self._pid = reader, connect, pid
        self._incoming, self._outgoing = Incoming(reader), Outgoing(writer)
        self._server: ToolServer | None = None

    @property
    def is_busy(self) -> bool:
        return self._server is not None and self._server.running > 0

    async def run(self) -> None:
        """Serve the client until it is gone; then its claims are given back."""
        hello = await self._read_hello()
        if hello is None:
            return
        try:
            registry = await anyio.to_thread.run_sync(self._open, hello)
        except HypervisorError as error:
            self._outgoing.control(refused=str(error), code=error.code)
            await asyncio.sleep(0)  # written by then
            return
        try:
            self._server = build(hello.tools, registry)
            self._outgoing.control(repeatable=self._server.repeatable)
            await self._talk(self._server, registry)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_end, registry)
                self._outgoing.control(claims=None)  # else the pipe has another server do it
                await asyncio.sleep(0)  # written by then

    async def _read_hello(self) -> Hello | None:
        """None from a client that only checks whether a server is running."""
        with anyio.move_on_after(HELLO_TIME):
            async for line in self._incoming:
                return Hello(**json.loads(line))
        return None

    def _open(self, hello: Hello) -> ClaimRegistry:
        from hypervisor.mcp.lazy_store import LazyStore

        own = {k: v for k, v in hello.environment.items() if k not in FOR_US_ALONE}
        given = given_by(hello.environment)
        hv = self._connect(hello.store, create=False, bare=True, environment=own)
        registry = ClaimRegistry(
            hv,
            given,
            self._pid,
            folder=hello.folder,
            environment=own,
            report=lambda state: self._outgoing.control(claims=state),
        )
        if not hv.has_store:
            LazyStore(lambda: self._connect(hello.store, environment=own)).stand_in(hv)
            return registry
        if hello.claims is not None:
            try:
                registry.restore(hello.claims)
            except BaseException:
                hv.close()
                raise
        with suppress(HypervisorError):  # ready before the first spawn, which should be quick
            _ = hv.settings, hv.launcher
        return registry

    async def _talk(self, server: ToolServer, registry: ClaimRegistry) -> None:
        files = cast(Any, (self._incoming, self._outgoing))
        async with anyio.create_task_group() as group:
            group.start_soon(_keep_alive, registry)
            group.start_soon(self._close_at_end, registry)
            async with stdio_server(*files) as (source, target):
                await server.run_streams(Readable(source, target), target)
            group.cancel_scope.cancel()

    async def _close_at_end(self, registry: ClaimRegistry) -> None:
        """A client that is gone may leave a call that takes long: its claims are released
        anyway."""
        await self._incoming.ended.wait()
        await anyio.sleep(GRACE)
        await anyio.to_thread.run_sync(registry.close)


async def _keep_alive(registry: ClaimRegistry) -> None:
    while True:
        await anyio.sleep(claims.BEAT)
        await anyio.to_thread.run_sync(registry.beat)


def _end(registry: ClaimRegistry) -> None:
    registry.close()
    registry.hv.close()
