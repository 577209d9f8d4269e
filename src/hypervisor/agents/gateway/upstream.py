"""Connections to providers: kept open between calls, with TLS and through the user's proxy.

HTTP/1.1 by h11. A connection that was idle may have been closed by the other side: a call that gets
no answer on it is repeated on a new one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, cast
from urllib.parse import SplitResult, urlsplit

import h11

from hypervisor.core.records import NamedTuple

if TYPE_CHECKING:
    import ssl

CONNECT_SECONDS = 30.0
IDLE_SECONDS = 30.0  # providers close idle connections after a minute or more
MAX_IDLE = 64
PIECE = 65_536
MAX_HEAD = 131_072
PORTS = {"http": 80, "https": 443}


class Target(NamedTuple):
    """A server, and how it is reached. `authorities` are files with further certificates."""

    scheme: str
    host: str
    port: int
    proxy: str = ""
    authorities: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def target_of(url: str, env: Mapping[str, str]) -> tuple[Target, str]:
    """The server of an address, and the path below which it is meant. ValueError: invalid."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError(f"invalid address {url[:100]!r}")
    files = tuple(filter(None, map(env.get, ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"))))
    host, port = parts.hostname, parts.port or PORTS[parts.scheme]
    proxy = "" if parts.scheme == "http" or _is_direct(host, env) else _proxy(env)
    return Target(parts.scheme, host, port, proxy, files), parts.path.rstrip("/")


def _proxy(env: Mapping[str, str]) -> str:
    names = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    return next(filter(None, map(env.get, names)), "")


def _is_direct(host: str, env: Mapping[str, str]) -> bool:
    listed = (env.get("NO_PROXY") or env.get("no_proxy") or "").split(",")
    names = [name.strip().lstrip("*").lstrip(".").lower() for name in listed]
    return "*" in (entry.strip() for entry in listed) or any(
        name and (host.lower() == name or host.lower().endswith(f".{name}")) for name in names
    )


class UpstreamConnection:
    """One HTTP/1.1 connection to a provider, one call at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self.idle_since: float | None = None  # None: it has not been used before

    async def send(self, request: h11.Request, body: bytearray) -> None:
        self._writer.write(self._http.send(request) or b"")
        if body:
            self._http.send_with_data_passthrough(h11.Data(cast("bytes", body)))  # counted
            for start in range(0, len(body), PIECE):  # a large one is not copied as a whole
                self._writer.write(memoryview(body)[start : start + PIECE])
                await self._writer.drain()
        self._writer.write(self._http.send(h11.EndOfMessage()) or b"")
        await self._writer.drain()

    async def response(self) -> h11.Response:
        """The head of the answer. ConnectionError: it was closed before."""
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                return event
            if isinstance(event, h11.ConnectionClosed):
                raise ConnectionResetError("closed without an answer")

    async def body(self) -> AsyncIterator[bytes]:
        """What has arrived, in one piece: events that came together are passed on together."""
        arrived = b""
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:
                if arrived:
                    yield arrived
                raise
            if isinstance(event, h11.Data):
                arrived += event.data
                continue
            if arrived:
                yield arrived
                arrived = b""
            if event is not h11.NEED_DATA:  # the end
                return
            self._http.receive_data(await self._reader.read(PIECE))

    async def _event(self) -> object:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._http.receive_data(await self._reader.read(PIECE))

    def is_reusable(self) -> bool:
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def is_closed(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()


class Upstreams:
    """The idle connections, newest first."""

    def __init__(self) -> None:
        self._idle: dict[Target, list[UpstreamConnection]] = {}

    async def connect(self, target: Target, new: bool = False) -> UpstreamConnection:
        """An idle connection, or a new one. OSError: the server cannot be reached."""
        idle = self._idle.get(target, [])
        while idle and not new:
            connection = idle.pop()
            fresh = time.monotonic() - (connection.idle_since or 0) < IDLE_SECONDS
            if fresh and not connection.is_closed():
                return connection
            connection.close()
        async with asyncio.timeout(CONNECT_SECONDS):
            return UpstreamConnection(*await _open(target))

    def put_back(self, target: Target, connection: UpstreamConnection) -> None:
        if not connection.is_reusable() or len(self._idle.get(target, ())) >= MAX_IDLE:
            return connection.close()
        connection.idle_since = time.monotonic()
        self._idle.setdefault(target, []).append(connection)
        return None

    def close_idle(self, all_of_them: bool = False) -> None:
        limit = time.monotonic() - (0 if all_of_them else IDLE_SECONDS)
        for idle in self._idle.values():
            for connection in [each for each in idle if (each.idle_since or 0) <= limit]:
                idle.remove(connection)
                connection.close()
        self._idle = {target: idle for target, idle in self._idle.items() if idle}


async def _open(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = _tls(target.authorities) if target.scheme == "https" else None
    if not target.proxy:
        return await asyncio.open_connection(target.host, target.port, ssl=context, limit=4 * PIECE)
    proxy = urlsplit(target.proxy if "://" in target.proxy else f"http://{target.proxy}")
    reader, writer = await asyncio.open_connection(
        proxy.hostname, proxy.port or PORTS.get(proxy.scheme, 80), limit=4 * PIECE
    )
    try:
        await _tunnel(reader, writer, target, proxy)
        assert context is not None
        await writer.start_tls(context, server_hostname=target.host)
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def _tunnel(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target, proxy: SplitResult
) -> None:
    where = f"{target.host}:{target.port}"
    lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}"]
    if proxy.username:
        from base64 import b64encode

        login = b64encode(f"{proxy.username}:{proxy.password or ''}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {login}")
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    head = await reader.readuntil(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or not status[1].startswith(b"2"):
        raise ConnectionRefusedError(f"the proxy {proxy.hostname} refused: {head[:80]!r}")


@lru_cache(16)
def _tls(authorities: tuple[str, ...]) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context()
    for path in authorities:
        context.load_verify_locations(path)
    return context
