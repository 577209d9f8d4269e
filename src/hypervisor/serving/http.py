"""A listening socket, the headers of a request, and answers that refuse one."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple

HOST = "127.0.0.1"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
QUEUE = 1024  # connections that the kernel keeps until they are accepted

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Refusal(NamedTuple):
    status: int
    why: str


class Headers:
    """The headers of a request. One that is given twice counts as empty."""

    def __init__(self, scope: Scope) -> None:
        self._given: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self._given.setdefault(name.lower(), []).append(value)

    def __contains__(self, name: bytes) -> bool:
        return name in self._given

    def one(self, name: bytes) -> str:
        values = self._given.get(name, [])
        return values[0].decode("latin-1") if len(values) == 1 else ""

    def bearer(self) -> str:
        scheme, _, token = self.one(b"authorization").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


def open_port(port: int, host: str = HOST) -> socket.socket:
    """A listening socket, on loopback unless told otherwise; port 0: any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(QUEUE)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = (error.strerror or error) if isinstance(error, OSError) else error
        where = f"port {port}" if host == HOST else f"{host}:{port}"
        raise InvalidInput(f"cannot use {where}: {reason}. Choose another with --port.") from None
    return listening


def host_name(host: str) -> str:
    """The name in a Host header or an address, without its port."""
    name, _, port = host.rpartition(":")
    return name if name and port.isdecimal() else host


def is_loopback(host: str) -> bool:
    return host_name(host) in LOOPBACK


async def refuse(send: Send, refusal: Refusal, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": refusal.why}).encode()
    await send(
        {
            "type": "http.response.start",
            "status": refusal.status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"connection", b"close"),
                (b"content-length", str(len(body)).encode()),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
