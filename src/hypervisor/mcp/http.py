"""Serving many clients over HTTP, on this machine only.

Whoever wants in needs the token that lies beside the store. Web pages are kept out
twice: a foreign Origin is refused, and so is a Host that is not this machine (DNS
rebinding). All of it is checked before anything of the request is read.
"""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.connections import QUEUE, Server
from hypervisor.mcp.tool import ToolServer
from hypervisor.runs.processes.log_file import log_level

HOST = "127.0.0.1"
PATH = "/mcp"
TOKEN_FILE = "serve.token"
LARGEST_BODY = 4 << 20
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
GRACE = 2  # seconds for answers under way when we are told to end

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """Lets nobody in without the token, and no page of the web at all."""

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
            await _refuse(send, *refusal)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        if scope["type"] != "http":
            return 404, "there is only HTTP here"
        given: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name.lower(), []).append(value)
        if not _is_here(_one(given, b"host")):
            return 421, "this server answers for this machine only: use 127.0.0.1"
        origin = _one(given, b"origin")
        if b"origin" in given and not (
            origin.startswith("http://") and _is_here(origin.removeprefix("http://"))
        ):
            return 403, "pages of other origins are not let in"
        scheme, _, shown = _one(given, b"authorization").partition(" ")
        right = hmac.compare_digest(shown.strip().encode(), self._expected)
        if scheme.lower() != "bearer" or not right:
            return 401, f"the token is wrong or missing: it is in the file {TOKEN_FILE}"
        return None


def open_port(port: int) -> socket.socket:
    """A port of this machine that listens; 0: any that is free."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(QUEUE)
    except (OSError, OverflowError) as error:
        found.close()
        raise InvalidInput(
            f"port {port} cannot be used: {error}. Choose one with --port."
        ) from None
    return found


def serve(
    server: ToolServer, registry: ClaimRegistry, token: str, listening: socket.socket
) -> None:
    """Serve until told to end."""
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        max_request_body_size=LARGEST_BODY,
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


def _one(headers: dict[bytes, list[bytes]], name: bytes) -> str:
    """The header, if it is there exactly once."""
    values = headers.get(name, [])
    return values[0].decode("latin-1") if len(values) == 1 else ""


def _is_here(host: str) -> bool:
    name, _, port = host.rpartition(":")
    if not name or not port.isdecimal():
        name = host
    return name in LOOPBACK


async def _refuse(send: Send, status: int, why: str) -> None:
    body = json.dumps({"error": why}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"connection", b"close"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
