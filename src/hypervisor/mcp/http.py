"""Serving many clients over HTTP, on this machine only.

Clients need the token stored next to the store. Web pages are kept out twice: a foreign Origin is
refused, and so is a Host that is not this machine (DNS rebinding). All of it is checked before
anything of the request is read.
"""

from __future__ import annotations

import hmac
import socket

from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tool import ToolServer
from hypervisor.runs.processes.log_file import log_level
from hypervisor.serving.connections import Server
from hypervisor.serving.http import (
    HOST,
    App,
    Headers,
    Receive,
    Refusal,
    Scope,
    Send,
    is_loopback,
    refuse,
)

PATH = "/mcp"
TOKEN_FILE = "serve.token"
MAX_BODY_SIZE = 4 << 20
GRACE = 2  # seconds for pending answers at shutdown


class Guard:
    """Refuses requests without the token, and all requests from web pages."""

    def __init__(self, app: App, token: str) -> None:
        self._app, self._expected = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            bearer = [(b"www-authenticate", b"Bearer")] if refusal.status == 401 else []
            await refuse(send, refusal, *bearer)

    def _refusal(self, scope: Scope) -> Refusal | None:
        if scope["type"] != "http":
            return Refusal(404, "only HTTP is supported")
        headers = Headers(scope)
        if not is_loopback(headers.one(b"host")):
            return Refusal(421, "this server only answers on this machine: use 127.0.0.1")
        origin = headers.one(b"origin")
        if b"origin" in headers and not (
            origin.startswith("http://") and is_loopback(origin.removeprefix("http://"))
        ):
            return Refusal(403, "requests from other origins are not allowed")
        if not hmac.compare_digest(headers.bearer().encode(), self._expected):
            return Refusal(401, f"wrong or missing token: it is in the file {TOKEN_FILE}")
        return None


def serve(
    server: ToolServer, registry: ClaimRegistry, token: str, listening: socket.socket
) -> None:
    """Serve until asked to stop."""
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        max_request_body_size=MAX_BODY_SIZE,
        host=HOST,
    )
    serving = Server(
        Guard(app, token),
        log_level=log_level("warning"),
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
    )
    try:
        serving.run(sockets=[listening])
    finally:
        registry.close()
