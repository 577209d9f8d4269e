"""Serving one client over stdin and stdout, until the pipe ends."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time

import anyio
import anyio.to_thread

from hypervisor.faces.mcp.desk import Desk
from hypervisor.faces.mcp.tool import ToolServer

GRACE = 2.0  # seconds for what was asked before the end


def serve(server: ToolServer, desk: Desk) -> None:
    """Serve until the client is gone; then its claims are given back."""
    threading.Thread(target=desk.beat_until_closed, name="heartbeats", daemon=True).start()
    pipe = os.dup(sys.stdin.fileno())  # the SDK puts something else in its place
    threading.Thread(target=_close_at_end, args=(desk, pipe), name="pipe", daemon=True).start()
    try:
        anyio.run(_serve, server, desk)
    finally:
        desk.close()


def _close_at_end(desk: Desk, pipe: int) -> None:
    """A client that is gone may leave answers unread in a pipe that somebody else keeps open:
    then we could never finish, and its claims shall be free all the same."""
    end = select.poll()
    end.register(pipe, 0)  # tells of the end alone
    end.poll()
    time.sleep(GRACE)
    desk.close()


async def _serve(server: ToolServer, desk: Desk) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_until_signal, desk)
        await server.run_stdio_async()
        group.cancel_scope.cancel()


async def _until_signal(desk: Desk) -> None:
    """A client may end us with a signal while the pipe is still open and a thread reads it."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for _ in signals:
            await anyio.to_thread.run_sync(desk.close)
            os._exit(0)
