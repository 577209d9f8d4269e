"""The MCP server that all clients of a store on this host share.

The SDK is loaded when the first client connects, so starting a server early costs little. It exits
after a while without clients. If it is killed, its clients continue with another one and keep their
claims.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import stat
import struct
import sys
import time
from typing import TYPE_CHECKING

from hypervisor.mcp.address import address_of, leave, listen

if TYPE_CHECKING:
    import asyncio

    from hypervisor.mcp.session import Connect, Session

IDLE = 30.0  # seconds without clients
LOOK = 0.5
QUIET_TIME = 1.5  # seconds for pending calls at shutdown
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
logger = logging.getLogger(__name__)


def run(connect: Connect) -> None:
    """Be the server of the store that HYPERVISOR_STORE names, unless there is one."""
    listening = _inherited() or listen(address_of(os.environ["HYPERVISOR_STORE"], os.environ))
    if listening is None:
        return
    os.chdir("/")  # no folder of a client is kept busy
    server = SharedServer(listening, connect)
    signal.signal(signal.SIGTERM, _exit)  # until it serves
    try:
        if select.select([listening], [], [], IDLE)[0]:
            server.serve()
    finally:
        server.leave()


def _exit(*_: object) -> None:
    """So that the socket is removed."""
    sys.exit(0)


def _inherited() -> socket.socket | None:
    """The socket on which the process that started us already listens."""
    return socket.socket(fileno=0) if stat.S_ISSOCK(os.fstat(0).st_mode) else None


def peer(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end, as the kernel knows them."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(data)
    return pid, uid


class SharedServer:
    def __init__(self, listening: socket.socket, connect: Connect) -> None:
        self._listening, self._connect = listening, connect
        self._address = listening.getsockname()
        self._inode = os.stat(self._address).st_ino
        self._sessions: set[Session] = set()
        self._last_left = time.monotonic()

    def serve(self) -> None:
        """Serve clients until there have been none for a while."""
        gc.disable()  # all that is loaded stays: nothing is found among the many new objects
        import anyio

        from hypervisor.mcp import session  # noqa: F401

        gc.freeze()
        gc.enable()
        logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT)
        anyio.run(self._serve)

    def leave(self) -> None:
        leave(self._address, self._inode)

    async def _serve(self) -> None:
        import asyncio

        import anyio

        from hypervisor.mcp.pipe import MAX_LINE_LENGTH

        self._last_left = time.monotonic()
        await asyncio.start_unix_server(
            self._serve_client, sock=self._listening, limit=2 * MAX_LINE_LENGTH
        )
        async with anyio.create_task_group() as group:
            group.start_soon(self._until_signal)
            while self._sessions or time.monotonic() < self._last_left + IDLE:
                await anyio.sleep(LOOK)
            self._end()

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        from hypervisor.mcp.session import Session

        pid, uid = peer(writer.get_extra_info("socket"))
        session = Session(reader, writer, self._connect, pid)
        try:
            if uid != os.getuid():
                logger.warning("refused a connection from user %d", uid)
                return
            self._sessions.add(session)
            await session.run()
        except Exception:  # one client must not take the others along
            logger.exception("the session of process %d failed", pid)
        finally:
            self._sessions.discard(session)
            self._last_left = time.monotonic()
            writer.close()

    async def _until_signal(self) -> None:
        """Stop on request. Our clients continue with another server, so no claim is released."""
        import anyio

        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for _ in signals:
                self.leave()
                with anyio.move_on_after(QUIET_TIME):
                    while any(session.is_busy for session in self._sessions):
                        await anyio.sleep(LOOK / 10)
                self._end()

    def _end(self) -> None:
        """At once: a client that has just connected keeps its claims and continues with another
        server."""
        self.leave()
        os._exit(0)
