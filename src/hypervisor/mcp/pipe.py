"""`hv mcp`: passes lines between one client and the MCP server that all clients of a store share.

A client's claims belong to this process, which lives exactly as long as the client wants it to.
If the server dies, another is started and given what it has to know: the handshake, the claims,
and the requests that are safe to repeat. The others are answered with an error. There is one of
these processes per client, so it must stay small: `make bench-mcp` has its bar.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from hypervisor.core.errors import EXIT_CODES, EXIT_OK, EXIT_UNEXPECTED
from hypervisor.core.store_path import named_store, store_path
from hypervisor.mcp.address import address_of, connect, is_database_variable, listen

CONTROL = b"#"  # begins a line of the server that is for us, not for the client
SERVE = "from hypervisor.entry_points import serve; serve()"
MAX_LINE_LENGTH = 64 << 20
MAX_WAITING = 1 << 20  # bytes to pass on: until they are gone no more is read
PIECE = 1 << 16
SAFE_WRITE = 4096  # this much can be written without waiting once poll() says so
GRACE = 2.0  # seconds for what is under way at the end, until the server gives claims back
PATIENCE = 2 * GRACE  # seconds without any sign of a client that has left its answers unread
MAX_FAILURES, PAUSE = 20, 0.02
MAX_STARTS, STARTS_WITHIN = 5, 60.0  # a server that dies more often than this is given up
BIGGEST_LOG = 10 << 20
SERVER_ERROR, INVALID_REQUEST = -32000, -32600
LOST = (
    "the MCP server exited during this call, which may or may not have taken effect: check "
    "before you repeat it. Claims are kept."
)
TOO_LONG = f"this message is longer than {MAX_LINE_LENGTH >> 20} MB. Nothing was done."
GIVEN_UP = "the MCP server keeps exiting; see its log: {}"
NO_CLAIMS = {"handed_out": 0, "asked": {}}
# What the server's own process needs; all else comes from each client.
ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LOGNAME", "USER")


class ServerGone(Exception):
    """The connection has ended."""


class Lines:
    """Cuts what is read into lines."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def add(self, piece: bytes) -> list[bytes]:
        """The lines that are complete now."""
        self._begun += piece
        if b"\n" not in piece:
            return []
        *lines, rest = bytes(self._begun).split(b"\n")
        self._begun = bytearray(rest)
        return lines

    def rest(self) -> list[bytes]:
        """At the end, what has no newline."""
        return [bytes(self._begun)] if self._begun else []

    def __len__(self) -> int:
        return len(self._begun)


class Requests:
    """What the client has asked, and what a new server has to know of that."""

    def __init__(self) -> None:
        self.repeatable: frozenset[str] = frozenset()  # tools that may be called again
        self._handshake: list[bytes] = []
        self.open: dict[str, tuple[bytes, Any]] = {}  # by id: the line, and what it says
        self._answered_handshake = ""
        self._unwanted = ""  # the id of an answer that the client has had before

    def asked(self, line: bytes) -> None:
        message = _object(line)
        method, params = message.get("method"), message.get("params")
        if method == "initialize":
            self._handshake, self._answered_handshake = [line], ""
        elif method == "notifications/initialized":
            self._handshake.append(line)
        elif method == "notifications/cancelled" and isinstance(params, dict):
            self.open.pop(json.dumps(params.get("requestId")), None)
        if method and "id" in message:
            self.open[json.dumps(message["id"])] = (line, message)

    def answered(self, line: bytes) -> bool:
        """Whether the client is to have this line."""
        message = _object(line)
        if "method" in message or "id" not in message:
            return True
        number = json.dumps(message["id"])
        if number == self._unwanted:
            self._unwanted = ""
            return False
        _, request = self.open.pop(number, (b"", {}))
        if request.get("method") == "initialize":
            self._answered_handshake = number
        return True

    def hand_over(self) -> tuple[list[bytes], list[bytes]]:
        """What a new server is sent, and what the client gets instead of an answer."""
        again = list(self._handshake) if self._answered_handshake else []
        self._unwanted = self._answered_handshake
        errors = []
        for number, (line, message) in list(self.open.items()):
            if self._is_repeatable(message):
                again.append(line)
            else:
                errors.append(_error(message["id"], SERVER_ERROR, LOST))
                del self.open[number]
        return again, errors

    def give_up(self, why: str) -> list[bytes]:
        return [_error(message["id"], SERVER_ERROR, why) for _, message in self.open.values()]

    def _is_repeatable(self, message: dict[str, Any]) -> bool:
        params = message.get("params")
        name = params.get("name") if isinstance(params, dict) else None
        if message["method"] != "tools/call":
            return True
        return isinstance(name, str) and name in self.repeatable


class Pipe:
    """One client at stdin and stdout, and its connection to the server."""

    def __init__(self, profile: str, store: str, source: int = 0, target: int = 1) -> None:
        self._store, self._source, self._target = store, source, target
        self._hello: dict[str, Any] = {
            "tools": profile,
            "store": store,
            "folder": _folder(),
            "environment": dict(os.environ),
            "claims": None,
        }
        self._address = address_of(store, os.environ)
        self._requests = Requests()
        self._from_client, self._from_server = Lines(), Lines()
        self._to_client, self._to_server = bytearray(), bytearray()
        self._greeting = bytearray()  # what the server has to have before all else
        self._ready = False  # the server knows us
        self._too_long = False  # the rest of a line is being skipped
        self._client_left = False
        self._all_sent = 0.0  # when the server had all that the client asked before it left
        self._has_ended = False  # the server knows that there will be no more
        self._starts: list[float] = []
        self._failures = 0  # connections in a row that ended before the server knew us
        self._refusal: tuple[str, int] | None = None

    def run(self) -> int:
        """Pass lines on until the client is gone. Returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._leave())
        try:
            return self._run()
        except OSError as error:
            sys.stderr.write(f"hv: cannot start an MCP server: {error}\n")
            return EXIT_UNEXPECTED

    def _run(self) -> int:
        self._connect()
        while True:
            try:
                if self._step():
                    break
            except ServerGone:
                if self._refusal or not self._is_needed():
                    break
                if not self._recover():
                    return EXIT_UNEXPECTED
        self._flush()
        if self._refusal:
            sys.stderr.write(f"hv: {self._refusal[0]}\n")
            return self._refusal[1]
        return EXIT_OK

    def _is_needed(self) -> bool:
        """Whether the client waits for answers, or a server has to give claims back."""
        waiting = self._requests.open and not self._has_ended
        claims = self._hello["claims"] or NO_CLAIMS
        return bool(not self._client_left or waiting or claims["asked"])

    def _connect(self) -> None:
        """Connect to the server, and start one if necessary."""
        while (connection := connect(self._address)) is None:
            listening = listen(self._address)
            if listening is not None:
                self._starts.append(time.monotonic())
                with listening:
                    start_server(self._store, listening)
        self._server = connection
        self._server.setblocking(False)
        self._ready, self._has_ended, self._all_sent = False, False, 0.0
        self._from_server = Lines()
        self._greeting = bytearray(json.dumps(self._hello).encode() + b"\n")

    def _step(self) -> bool:
        """Wait for something to pass on, and pass it on. True: the client is gone."""
        waiting = self._greeting or (self._to_server if self._ready else b"")
        reads = 0 if len(self._to_client) > MAX_WAITING else select.POLLIN
        events = {self._server.fileno(): reads | (select.POLLOUT if waiting else 0)}
        if not self._client_left:
            full = len(self._to_server) > MAX_WAITING
            events[self._source] = 0 if full else select.POLLIN
        if self._to_client:
            events[self._target] = select.POLLOUT
        poll = select.poll()
        for handle, wanted in events.items():
            poll.register(handle, wanted)
        patience = PATIENCE if self._has_ended else GRACE
        happened = poll.poll(patience * 1000 if self._client_left else None)
        for handle, event in happened:
            if handle == self._server.fileno():
                self._exchange(event)
            elif handle == self._target:
                if not self._write():
                    return True
            elif event:
                self._read()
        self._end_requests()
        unread = self._to_client and not happened
        return bool(unread and self._has_ended)

    def _read(self) -> None:
        try:
            piece = os.read(self._source, PIECE)
        except OSError:
            piece = b""
        for line in self._from_client.add(piece) if piece else self._from_client.rest():
            if self._too_long:
                self._too_long = False
                continue
            self._requests.asked(line)
            self._to_server += line + b"\n"
        if len(self._from_client) > MAX_LINE_LENGTH:
            if not self._too_long:
                self._to_client += _error(None, INVALID_REQUEST, TOO_LONG)
            self._from_client, self._too_long = Lines(), True
        self._client_left = not piece

    def _end_requests(self) -> None:
        """Tell the server that no more requests will come, once it has answered them all."""
        if not (self._client_left and self._ready) or self._to_server or self._has_ended:
            return
        self._all_sent = self._all_sent or time.monotonic()
        if not self._requests.open or time.monotonic() >= self._all_sent + GRACE:
            self._has_ended = True
            with suppress(OSError):
                self._server.shutdown(socket.SHUT_WR)

    def _exchange(self, event: int) -> None:
        try:
            if event & select.POLLOUT:
                waiting = self._greeting or self._to_server
                del waiting[: self._server.send(waiting)]
            if event & ~select.POLLOUT:
                self._receive(self._server.recv(PIECE))
        except BlockingIOError:
            pass
        except OSError:
            raise ServerGone from None

    def _receive(self, piece: bytes) -> None:
        if not piece:
            raise ServerGone
        for line in self._from_server.add(piece):
            if line.startswith(CONTROL):
                self._handle_control(json.loads(line[len(CONTROL) :]))
            elif self._requests.answered(line):
                self._to_client += line + b"\n"

    def _handle_control(self, order: dict[str, Any]) -> None:
        if "claims" in order:
            self._hello["claims"] = order["claims"]
        if "repeatable" in order:
            self._requests.repeatable = frozenset(order["repeatable"])
            self._ready = True
        if "refused" in order:
            code = EXIT_CODES.get(order["code"], EXIT_UNEXPECTED)
            self._refusal = (order["refused"], code)

    def _write(self) -> bool:
        """False if the client has stopped reading."""
        try:
            del self._to_client[: os.write(self._target, self._to_client[:SAFE_WRITE])]
        except OSError:
            return False
        return True

    def _recover(self) -> bool:
        """Continue with another server; False if that is of no use."""
        self._server.close()
        self._failures = 0 if self._ready else self._failures + 1
        time.sleep(PAUSE * (1 + self._failures))  # a socket may outlive its process for a moment
        self._starts = [at for at in self._starts if at > time.monotonic() - STARTS_WITHIN]
        if len(self._starts) >= MAX_STARTS or self._failures >= MAX_FAILURES:
            why = GIVEN_UP.format(log_of(self._store, self._address))
            self._to_client += b"".join(self._requests.give_up(why))
            self._flush()
            sys.stderr.write(f"hv: {why}\n")
            return False
        if self._ready:  # else it has seen nothing of what the client asked
            again, errors = self._requests.hand_over()
            self._to_server = bytearray(b"".join(line + b"\n" for line in again))
            self._to_client += b"".join(errors)
        self._hello["claims"] = self._hello["claims"] or NO_CLAIMS
        self._connect()
        return True

    def _flush(self) -> None:
        """Write what is left, if the client still reads."""
        until = time.monotonic() + GRACE
        poll = select.poll()
        poll.register(self._target, select.POLLOUT)
        while self._to_client and time.monotonic() < until and poll.poll(GRACE * 1000):
            if not self._write():
                return

    def _leave(self) -> None:
        """We were asked to stop: wait until the claims are released."""
        with suppress(OSError, AttributeError):  # there may be no connection yet
            self._server.settimeout(PATIENCE)
            self._server.shutdown(socket.SHUT_WR)
            until = time.monotonic() + PATIENCE
            while self._server.recv(PIECE) and time.monotonic() < until:
                pass
        os._exit(EXIT_OK)


def pipe_to(profile: str, store: str | None) -> Pipe:
    """A pipe to the server of the store that is meant."""
    named = named_store(store, os.environ)
    return Pipe(profile, named if "://" in named else store_path(named, create=True))


def start_server(store: str, listening: socket.socket) -> None:
    """Start the server, with the socket that it listens on as its standard input."""
    kept = {k: v for k, v in os.environ.items() if k in ENVIRONMENT or is_database_variable(k)}
    log = log_of(store, listening.getsockname())
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-c", SERVE, "mcp", "" if "://" in store else store],
        {**kept, "HYPERVISOR_STORE": store},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, listening.fileno(), 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE),
    )


def log_of(store: str, address: str) -> str:
    """Next to the store; next to the socket if the store has no folder yet."""
    folder = os.path.dirname(store)
    if "://" in store or not os.access(folder, os.W_OK):
        return f"{address.removesuffix('.sock')}.log"
    path = os.path.join(folder, "mcp.log")
    if os.path.exists(path) and os.path.getsize(path) > BIGGEST_LOG:
        os.replace(path, f"{path}.old")
    return path


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _object(line: bytes) -> dict[str, Any]:
    """{} for what is none: the server says so to the client."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _error(number: Any, code: int, message: str) -> bytes:
    answer = {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}
    return json.dumps(answer, ensure_ascii=True).encode() + b"\n"
