"""Serving one client over stdin and stdout, until the pipe ends.

The SDK takes most of a second to load, so the door answers first. Nothing of the SDK
is imported here before it is needed.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.first_answers import Passed, meet

if TYPE_CHECKING:
    from hypervisor.mcp.tool import ToolServer

GRACE = 2.0  # seconds for what was asked before the end
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def serve(profile: str, desk: ClaimRegistry) -> None:
    """Serve until the client is gone; then its claims are given back."""
    threading.Thread(target=desk.beat_until_closed, name="heartbeats", daemon=True).start()
    pipe = os.dup(sys.stdin.fileno())  # the SDK puts something else in its place
    threading.Thread(target=_close_at_end, args=(desk, pipe), name="pipe", daemon=True).start()
    loading = Loading(profile, desk)
    for each in ENDS:  # nothing is claimed before the session: there is nothing to give back
        signal.signal(each, lambda *_: os._exit(0))
    try:
        passed = meet(profile, sys.stdin.fileno(), sys.stdout.fileno(), loading.begin)
        if passed is not None:
            _go_on(loading.server(), desk, passed)
    finally:
        desk.close()


class Loading:
    """The server with all that the SDK takes along, made beside the door."""

    def __init__(self, profile: str, desk: ClaimRegistry) -> None:
        self._profile, self._desk = profile, desk
        self._made: ToolServer | None = None
        # Not a daemon: cut off within the SDK's own libraries, it could take the process along.
        self._thread = threading.Thread(target=self._try, name="loading")

    def begin(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def server(self) -> ToolServer:
        if self._thread.ident is not None:
            self._thread.join()
        return self._made or self._make()

    def _try(self) -> None:
        with suppress(Exception):  # whoever asks for it tries again, and tells
            self._made = self._make()

    def _make(self) -> ToolServer:
        gc.disable()  # all of it stays: nothing is found among the many new objects
        try:
            from hypervisor.mcp import session  # noqa: F401
            from hypervisor.mcp.server import build

            return build(self._profile, self._desk)
        finally:
            gc.freeze()
            gc.enable()


def _go_on(server: ToolServer, desk: ClaimRegistry, passed: Passed) -> None:
    import anyio

    from hypervisor.mcp.session import go_on

    anyio.run(go_on, server, desk, passed)


def _close_at_end(desk: ClaimRegistry, pipe: int) -> None:
    """A client that is gone may leave answers unread in a pipe that somebody else keeps open:
    then we could never finish, and its claims shall be free all the same."""
    end = select.poll()
    end.register(pipe, 0)  # tells of the end alone
    end.poll()
    time.sleep(GRACE)
    desk.close()
