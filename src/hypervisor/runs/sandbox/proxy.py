"""The HTTP proxy of one attempt: the only way out of a network of its own.

It passes on CONNECT and plain HTTP requests to allowed hosts. It listens on a socket that was
created inside and handed out, and connects from outside. Each refusal is answered with a sentence
and noted in a file.
"""

from __future__ import annotations

import base64
import json
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from hypervisor.runs.sandbox.plan import Reach, allows, refusal

MAX_HEAD = 64 << 10
PATIENCE = 30.0  # seconds to connect, or for a request to arrive
PIECE = 64 << 10
MAX_NOTED = 1_000
MAX_CONNECTIONS = 256
LOOPBACK = "127.0.0.1"


class Refused(Exception):
    """The request is answered with this status and text."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class Proxy:
    def __init__(self, reach: Reach, denials: str) -> None:
        self._reach, self._denials = reach, denials
        self._noted, self._lock = 0, threading.Lock()

    def serve(self, client: socket.socket) -> None:
        """Handle one connection of the attempt."""
        client.settimeout(PATIENCE)
        try:
            self._pass_on(client, *_read_head(client))
        except Refused as refused:
            with suppress(OSError):
                client.sendall(_response(refused))
                client.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _pass_on(self, client: socket.socket, head: bytes, rest: bytes) -> None:
        line, _, headers = head.partition(b"\r\n")
        words = line.decode("latin-1").split(" ")
        if len(words) != 3:
            raise Refused("400 Bad Request", "This is not an HTTP request.\n")
        method, target, protocol = words
        tunnel = method == "CONNECT"
        url = urlsplit(f"//{target}" if tunnel else target)
        name, port = _address(url.hostname, url.port if _has_port(url) else None, tunnel)
        if not tunnel and url.scheme != "http":
            raise Refused("400 Bad Request", "Use CONNECT for anything other than http.\n")
        if not allows(self._reach.hosts, name, port):
            self._note(name, port)
            raise Refused("403 Forbidden", refusal(name, port))
        with self._connect(name, port) as server:
            if tunnel:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                server.sendall(rest)
            else:
                path = url.path + (f"?{url.query}" if url.query else "")
                first = f"{method} {path or '/'} {protocol}\r\n".encode("latin-1")
                server.sendall(first + _without_proxy_headers(headers) + rest)
            splice(client, server)

    def _connect(self, name: str, port: int) -> socket.socket:
        if not self._reach.upstream:
            return _open(name, port)
        url = urlsplit(self._reach.upstream)
        server = _open(url.hostname or "", url.port or 8080)
        request = f"CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n"
        if url.username:
            login = f"{url.username}:{url.password or ''}".encode()
            request += f"Proxy-Authorization: Basic {base64.b64encode(login).decode()}\r\n"
        server.sendall(request.encode("latin-1") + b"\r\n")
        head, _ = _read_head(server)
        if b" 200" not in head.partition(b"\r\n")[0]:
            server.close()
            raise Refused("502 Bad Gateway", f"The proxy of this host refused {name}:{port}.\n")
        return server

    def _note(self, name: str, port: int) -> None:
        entry = json.dumps({"at": int(time.time() * 1000), "host": name[:255], "port": port})
        with self._lock:
            self._noted += 1
            if self._noted <= MAX_NOTED:
                with suppress(OSError), open(self._denials, "a", encoding="utf-8") as file:
                    file.write(entry + "\n")


def forward(port: int) -> Callable[[socket.socket], None]:
    """Handles connections by passing them on to a port of this host."""

    def handle(client: socket.socket) -> None:
        with suppress(OSError, Refused), _open(LOOPBACK, port) as server:
            splice(client, server)

    return handle


def serve_forever(listening: socket.socket, handle: Callable[[socket.socket], None]) -> None:
    """A thread for each connection; more than MAX_CONNECTIONS at once wait."""
    free = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def run(client: socket.socket) -> None:
        try:
            with client:
                handle(client)
        finally:
            free.release()

    while True:
        free.acquire()
        try:
            client, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=run, args=(client,), daemon=True).start()


def splice(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes on in both directions until both sides have ended."""
    one.settimeout(None)
    other.settimeout(None)
    targets = {one: other, other: one}
    while targets:
        readable, _, _ = select.select(list(targets), [], [])
        for source in readable:
            target = targets[source]
            try:
                piece = source.recv(PIECE)
                target.sendall(piece)
            except OSError:
                return
            if not piece:
                del targets[source]
                with suppress(OSError):
                    target.shutdown(socket.SHUT_WR)


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """The request up to its empty line, and what followed."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = client.recv(PIECE)
        if not piece or len(received) > MAX_HEAD:
            raise Refused("400 Bad Request", "This is not an HTTP request.\n")
        received += piece
    head, _, rest = received.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def _has_port(url: object) -> bool:
    try:
        return url.port is not None  # type: ignore[attr-defined]
    except ValueError:
        raise Refused("400 Bad Request", "Invalid port.\n") from None


def _address(name: str | None, port: int | None, tunnel: bool) -> tuple[str, int]:
    if not name:
        raise Refused("400 Bad Request", "The request names no host.\n")
    return name, port or (443 if tunnel else 80)


def _open(name: str, port: int) -> socket.socket:
    try:
        return socket.create_connection((name, port), PATIENCE)
    except OSError as error:
        text = f"Cannot connect to {name}:{port}: {error}\n"
        raise Refused("502 Bad Gateway", text) from None


def _without_proxy_headers(headers: bytes) -> bytes:
    """One request per connection: the next one may be for another host."""
    lines = [
        line
        for line in headers.split(b"\r\n")
        if not line.lower().startswith((b"proxy-", b"connection:"))
    ]
    return b"Connection: close\r\n" + b"\r\n".join(lines)


def _response(refused: Refused) -> bytes:
    body = refused.text.encode()
    return (
        f"HTTP/1.1 {refused.status}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode() + body
