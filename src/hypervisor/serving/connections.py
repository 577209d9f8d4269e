"""Connections to our HTTP servers: how many there may be, and how long a request may take to begin.

Any user of this machine can connect; only a request shows who has the token. So a connection
without a whole header is cut off after some seconds, or earlier when too many are open: the oldest
goes first, which is never the one of a client that sends its request at once.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from hypervisor.serving.http import QUEUE

HEADER_TIME = 10.0  # seconds until a request's header must be here
MAX_WAITING = 256
REPEAT = 60.0  # seconds until the same message is logged again
MAX_FILES = 1 << 16

logger = logging.getLogger("uvicorn.error")


class State(ServerState):
    """Also knows the connections whose next header is not here yet, oldest first."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.waiting: dict[Connection, asyncio.TimerHandle] = {}

    def expect_header(self, connection: Connection) -> None:
        if connection in self.waiting:
            return
        if len(self.waiting) >= self.most:
            self.drop(next(iter(self.waiting)))
        timer = connection.loop.call_later(HEADER_TIME, self.drop, connection)
        self.waiting[connection] = timer

    def forget(self, connection: Connection) -> None:
        if timer := self.waiting.pop(connection, None):
            timer.cancel()

    def drop(self, connection: Connection) -> None:
        self.forget(connection)
        connection.transport.abort()


class Connection(H11Protocol):
    server_state: State

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.server_state.expect_header(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.server_state.expect_header(self)
        else:
            self.server_state.forget(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_state.forget(self)
        super().connection_lost(exc)


class Server(uvicorn.Server):
    def __init__(self, app: Any, **options: Any) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if not 0 < files < MAX_FILES:  # or without a limit
            files = MAX_FILES
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                loop="asyncio",
                limit_concurrency=files * 3 // 4,
                # asyncio accepts as many at once, before any of them can be counted. Out of
                # files, it even tries and logs as often. The kernel's queue is set at start.
                backlog=1,
                **options,
            )
        )
        self.server_state = State(min(max(files // 4, 1), MAX_WAITING))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        logger.addFilter(Repeated().is_new)
        asyncio.get_running_loop().set_exception_handler(_tell)
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(QUEUE)


class Repeated:
    """Strangers can cause warnings at will: each is logged once in a while."""

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}

    def is_new(self, record: logging.LogRecord) -> bool:
        if record.exc_info:
            return not isinstance(record.exc_info[1], asyncio.CancelledError)  # cut off at the end
        if record.created - self._logged.get(record.msg, 0.0) < REPEAT:
            return False
        self._logged[record.msg] = record.created
        return True


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """asyncio accepts nothing for a second when it runs out of files, and logs it at length."""
    if str(context.get("message")).startswith("socket.accept()"):
        logger.warning("too many open files: new connections have to wait")
    else:
        loop.default_exception_handler(context)
