"""One client's session with the SDK, from where the door left it."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse, jsonrpc_message_adapter

from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.first_answers import Passed
from hypervisor.mcp.tool import ToolServer
from hypervisor.mcp.unreadable import complaint

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream


class Heard(ObjectReceiveStream[SessionMessage | Exception]):
    """What the client said: first the lines that the door took in. What cannot be read is answered
    here, as the SDK says nothing to it."""

    def __init__(
        self,
        lines: Sequence[str],
        rest: ReadStream[SessionMessage | Exception],
        target: WriteStream[SessionMessage],
    ) -> None:
        self._lines, self._rest, self._target = deque(lines), rest, target

    async def receive(self) -> SessionMessage | Exception:
        heard = await self._next()
        while isinstance(heard, Exception):
            if answer := complaint(heard):
                await self._target.send(SessionMessage(answer))
            heard = await self._next()
        return heard

    async def _next(self) -> SessionMessage | Exception:
        if not self._lines:
            return await self._rest.receive()
        try:
            line = self._lines.popleft()
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            return error

    async def aclose(self) -> None:
        await self._rest.aclose()


class Unsaid(ObjectSendStream[SessionMessage]):
    """Drops the answer to the handshake that the client has had from the door."""

    def __init__(self, greeted: int | str | None, target: WriteStream[SessionMessage]) -> None:
        self._greeted, self._target = greeted, target

    async def send(self, item: SessionMessage) -> None:
        answer = item.message
        if self._greeted is not None and isinstance(answer, JSONRPCResponse):
            # The SDK answers a handshake before it looks at anything else.
            had, self._greeted = self._greeted, None
            if answer.id == had:
                return
        await self._target.send(item)

    async def aclose(self) -> None:
        await self._target.aclose()


async def go_on(server: ToolServer, desk: ClaimRegistry, passed: Passed) -> None:
    """Serve until the pipe ends."""
    async with anyio.create_task_group() as group:
        group.start_soon(_until_signal, desk)
        async with stdio_server() as (source, target):
            heard = Heard(passed.lines, source, target)
            await server.run_streams(heard, Unsaid(passed.greeted, target))
        group.cancel_scope.cancel()


async def _until_signal(desk: ClaimRegistry) -> None:
    """A client may end us with a signal while the pipe is still open and a thread reads it."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for _ in signals:
            await anyio.to_thread.run_sync(desk.close)
            os._exit(0)
