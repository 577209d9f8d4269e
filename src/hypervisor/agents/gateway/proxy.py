"""The gateway: passes the calls of agents on to their providers, and counts what they use.

An answer is passed on piece by piece, as it arrives. Its usage is handed to the ledger before the
piece that completes it is passed on, so the agent's next call is checked against it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import h11

from hypervisor.agents.gateway.admission import Refusal, Wait
from hypervisor.agents.gateway.call_meter import CallMeter
from hypervisor.agents.gateway.client import Call, Client, TooLarge, refusal_body
from hypervisor.agents.gateway.ledger import Admitted
from hypervisor.agents.gateway.route import KEY_HEADERS, Headers, Upstream, Wire, wire_of
from hypervisor.agents.gateway.upstream import Target, UpstreamConnection, Upstreams, target_of
from hypervisor.agents.json_fields import member, text
from hypervisor.agents.stream_errors import parse_retry_after, stream_error
from hypervisor.core.errors import StoreError

if TYPE_CHECKING:
    from hypervisor.agents.gateway.ledger import SpendingLedger

logger = logging.getLogger("hypervisor.agents")
Answer = TypeVar("Answer")
LIMITED = (429, 503, 529)
TRIES = 4  # of a call that the provider refuses for a while
MAX_WAITS = 20_000  # rounds that a call waits for others, or for a cooldown
MAX_ERROR = 65_536  # bytes of an error that are read
OWN_HEADERS = (  # of one connection; the rest is passed on
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"),
    *("transfer-encoding", "upgrade", "host", "content-length", "accept-encoding", "expect"),
)


class Gateway:
    def __init__(self, ledger: SpendingLedger) -> None:
        self._ledger = ledger
        self._thread = ThreadPoolExecutor(1, "ledger")
        self._upstreams = Upstreams()
        self.open_connections = 0
        self.busy = 0  # calls in progress

    async def in_order(self, job: Callable[..., Answer], *args: Any) -> Answer:
        """Run a job in the ledger's thread, after those that were given before."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, job, *args)

    def close(self) -> None:
        self._upstreams.close_idle(all_of_them=True)
        self._thread.shutdown()

    def tidy(self) -> None:
        self._upstreams.close_idle()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the calls on one connection."""
        client = Client(reader, writer)
        self.open_connections += 1
        try:
            while (call := await client.call()) is not None:
                self.busy += 1
                try:
                    await self._answer(client, call)
                finally:
                    self.busy -= 1
                if not client.next_call():
                    break
        except TooLarge:
            with suppress(OSError, h11.LocalProtocolError):
                await client.answer(413, refusal_body("", "the request is too large", 413))
        except (OSError, h11.RemoteProtocolError, h11.LocalProtocolError) as error:
            logger.debug("a connection of an agent broke: %s", error)
        finally:
            self.open_connections -= 1
            client.close()

    async def _answer(self, client: Client, call: Call) -> None:
        if "websocket" in call.header("upgrade").lower():
            return await client.answer(426, refusal_body("", "no websockets, use HTTP", 426))
        if call.method == "HEAD":
            return await client.answer(200, None)
        wire = wire_of(call.method, call.path)
        if wire is None:
            return await client.answer(404, refusal_body("", f"no such call: {call.path[:200]}"))
        work = asyncio.ensure_future(self._pass_on(client, call, wire))
        gone = asyncio.ensure_future(client.gone())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()  # nobody reads the answer: the provider need not finish it
            with suppress(asyncio.CancelledError):
                await work
        finally:
            gone.cancel()

    async def _pass_on(self, client: Client, call: Call, wire: Wire) -> None:
        for attempt in range(TRIES):
            try:
                admission = await self._admission(call)
            except StoreError as error:
                logger.warning("cannot admit a call: %s", error)
                return await client.answer(
                    503, refusal_body(wire, "its store is unavailable", 503), ("retry-after", "2")
                )
            if isinstance(admission, Refusal):
                return await client.answer(403, refusal_body(wire, admission.reason))
            if await self._forward(client, call, wire, admission, last=attempt == TRIES - 1):
                return None
        return None

    async def _admission(self, call: Call) -> Admitted | Refusal:
        for _ in range(MAX_WAITS):
            admission = await self.in_order(self._ledger.admit, call.token, call.route)
            if not isinstance(admission, Wait):
                return admission
            await asyncio.sleep(admission.seconds)
        return Refusal("request", "waited too long for other calls")

    async def _forward(
        self, client: Client, call: Call, wire: Wire, admitted: Admitted, *, last: bool
    ) -> bool:
        """False if the provider refused it for a while; the cooldown has begun."""
        meter = CallMeter("", False)
        connection: UpstreamConnection | None = None
        counted = _Once(lambda: self._finish(admitted, meter))
        try:
            target, request = _request(call, admitted)
            connection, response = await self._ask(target, request, call.body)
            if response.status_code in LIMITED and not last:
                await self._note_limit(admitted, connection, response)
                return False
            paid = wire if response.status_code < 300 else ""
            meter = CallMeter(paid, _is_stream(response), len(call.body))
            await client.begin(response.status_code, _headers(response))
            async for piece in connection.body():
                meter.feed(piece)
                if meter.is_final:
                    counted()
                await client.send(h11.Data(piece))
            meter.end()
            counted()
            await client.send(h11.EndOfMessage())
            self._upstreams.put_back(target, connection)
            connection = None
        except (OSError, ValueError, h11.RemoteProtocolError) as error:
            await _broken(client, wire, error)
        finally:
            counted()
            if connection is not None:
                connection.close()
        return True

    def _finish(self, admitted: Admitted, meter: CallMeter) -> None:
        """Given to the ledger at once; nothing waits for it."""
        self._thread.submit(self._ledger.finish, admitted, meter.tokens, meter.model)

    async def _ask(
        self, target: Target, request: h11.Request, body: bytearray
    ) -> tuple[UpstreamConnection, h11.Response]:
        connection = await self._upstreams.connect(target)
        try:
            await connection.send(request, body)
            return connection, await connection.response()
        except (OSError, h11.RemoteProtocolError):
            connection.close()
            if connection.idle_since is None:
                raise
        except BaseException:
            connection.close()
            raise
        connection = await self._upstreams.connect(target, new=True)
        try:
            await connection.send(request, body)
            return connection, await connection.response()
        except BaseException:
            connection.close()
            raise

    async def _note_limit(
        self, admitted: Admitted, connection: UpstreamConnection, response: h11.Response
    ) -> None:
        body = b""
        async for piece in connection.body():
            body += piece
            if len(body) > MAX_ERROR:
                break
        header = next((v for n, v in response.headers if n == b"retry-after"), b"")
        reset_at, retry_after = parse_retry_after(header.decode("latin-1"))
        error = stream_error(
            _message(body), response.status_code, reset_at=reset_at, retry_after=retry_after
        )
        await self.in_order(self._ledger.limited, admitted, error)


class _Once:
    """Calls a function the first time."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function: Callable[[], None] | None = function

    def __call__(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            function()


def _request(call: Call, admitted: Admitted) -> tuple[Target, h11.Request]:
    target, base = target_of(admitted.upstream.address, admitted.env)
    pairs = parse_qsl(call.query, True)
    has_key = any(name == "key" for name, _ in pairs)
    query = urlencode([pair for pair in pairs if pair[0] != "key"]) if has_key else call.query
    dropped = {*OWN_HEADERS, *KEY_HEADERS}
    headers = [
        ("host", target.name),
        *((name, value) for name, value in call.headers if name not in dropped),
        *_auth(call, admitted.upstream),
        ("accept-encoding", "identity"),  # a compressed answer could not be counted
    ]
    if call.body or call.method == "POST":
        headers.append(("content-length", str(len(call.body))))
    path = f"{base}{call.path}{f'?{query}' if query else ''}"
    return target, h11.Request(method=call.method, target=path, headers=headers)


def _auth(call: Call, upstream: Upstream) -> Headers:
    """The key, as the provider expects it: in the header in which the token came, unless set."""
    if not upstream.key:
        return upstream.auth
    name = next((name for name in KEY_HEADERS if call.header(name)), "authorization")
    key = f"Bearer {upstream.key}" if name == "authorization" else upstream.key
    return ((name, key), *(pair for pair in upstream.auth if pair[0] != name))


def _headers(response: h11.Response) -> list[tuple[str, str]]:
    """Those of the answer, as they came; its length stays known if it was."""
    kept = [(n, v) for n, v in response.headers if n.decode() not in OWN_HEADERS]
    kept += [(n, v) for n, v in response.headers if n == b"content-length"]
    return [(name.decode(), value.decode("latin-1")) for name, value in kept]


def _is_stream(response: h11.Response) -> bool:
    return any(n == b"content-type" and b"event-stream" in v for n, v in response.headers)


async def _broken(client: Client, wire: Wire, error: Exception) -> None:
    """The provider cannot be reached, or has broken off its answer."""
    if client.has_begun:
        client.abort()
        return
    number = getattr(error, "errno", None)
    reason = os.strerror(number) if number and number > 0 else str(error) or type(error).__name__
    body = refusal_body(wire, f"cannot connect to the provider: {reason}", 502)
    await client.answer(502, body)


def _message(body: bytes) -> str:
    """The text of a provider's error."""
    try:
        error = member(json.loads(body), "error")
    except (ValueError, RecursionError):
        error = {}
    return text(error, "message") or body[:500].decode("utf-8", "replace")
