"""A connection from an agent: its requests, and the answers to them."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import parse_qsl

import h11

from hypervisor.agents.gateway.route import KEY_HEADERS, Wire
from hypervisor.core.records import NamedTuple

PIECE = 65_536
MAX_HEAD = 131_072
MAX_BODY = 128 << 20
JSON = ("content-type", "application/json")


class TooLarge(Exception):
    """The request has more than MAX_BODY bytes."""


class Call(NamedTuple):
    """A request of an agent. `route` is the first part of its path, `path` the rest."""

    method: str
    route: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytearray

    def header(self, name: str) -> str:
        return next((value for header, value in self.headers if header == name), "")

    @property
    def token(self) -> str:
        """Where each CLI puts its key."""
        for name in KEY_HEADERS:
            if value := self.header(name):
                return value.removeprefix("Bearer ").removeprefix("bearer ").strip()
        return next((value for name, value in parse_qsl(self.query) if name == "key"), "")


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        # asyncio reads up to 256 KB at once, which would be kept twice for each agent.
        setattr(writer.transport, "max_size", PIECE)  # noqa: B010 (unknown to type checkers)
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._reading: asyncio.Task[bytes] | None = None
        self.has_begun = False  # the answer to the current call

    async def call(self) -> Call | None:
        """The next call; None once the agent has closed the connection."""
        request, body = None, bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    await self.send(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(await self._next_piece())
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BODY:
                    raise TooLarge
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                return _call(request, body)
            else:
                return None

    async def gone(self) -> None:
        """Returns when the agent has closed the connection."""
        while True:
            piece = await asyncio.shield(self._read())
            if not piece:
                return
            self._http.receive_data(piece)  # the next call, early
            self._reading = None

    def next_call(self) -> bool:
        """Whether the connection can be used for another call."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self.has_begun = False
        return True

    async def send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()

    async def begin(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.has_begun = True
        await self.send(h11.Response(status_code=status, headers=headers))

    async def answer(self, status: int, body: object, *headers: tuple[str, str]) -> None:
        """A whole answer of our own."""
        data = b"" if body is None else json.dumps(body).encode()
        length = ("content-length", str(len(data)))
        await self.begin(status, [JSON, length, *headers])
        if data:
            await self.send(h11.Data(data))
        await self.send(h11.EndOfMessage())

    def abort(self) -> None:
        """The agent must notice that the answer is not complete."""
        self._writer.transport.abort()

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._writer.close()

    async def _next_piece(self) -> bytes:
        piece = await self._read()
        self._reading = None
        return piece

    def _read(self) -> asyncio.Task[bytes]:
        """One read at a time, which a call that ends first leaves to the next one."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._reader.read(PIECE))
        return self._reading


def _call(request: h11.Request, body: bytearray) -> Call:
    target = request.target.decode("latin-1")
    path, _, query = target.partition("?")
    route, _, rest = path.lstrip("/").partition("/")
    headers = tuple((name.decode(), value.decode("latin-1")) for name, value in request.headers)
    return Call(request.method.decode(), route, f"/{rest}", query, headers, body)


def refusal_body(wire: Wire, reason: str, status: int = 403) -> dict[str, object]:
    """An error as the provider would write it."""
    message = f"Hypervisor: {reason}"
    if wire == "messages":
        error = {"type": "permission_error", "message": message}
        return {"type": "error", "error": error}
    if wire == "gemini":
        return {"error": {"code": status, "message": message, "status": "PERMISSION_DENIED"}}
    return {"error": {"message": message, "type": "permission_error", "code": "hypervisor"}}
