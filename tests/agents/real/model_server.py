"""A scripted model on loopback that speaks the wire APIs of the agent CLIs.

Many agents may talk to it at once: the first script that matches a request's text answers it. It
records every request with its time, and the tokens it reported.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any, NamedTuple

from tests.agents.real.moves import Move, Script, Turn, say
from tests.agents.real.wires import chat, gemini, messages, reply, responses


class Asked(NamedTuple):
    """A request that a script answered."""

    at: float
    key: str
    wire: str
    move: Move
    turn: Turn


class Dealt(NamedTuple):
    """Tokens that the server reported."""

    input: int = 0
    output: int = 0
    cached: int = 0
    replies: int = 0


class ModelServer:
    """The server, in a thread of this process. Use as a context manager.

    It can be down, from the start or for a while: connections are then refused, and open ones are
    reset. It keeps its address."""

    def __init__(
        self, scripts: list[Script] | None = None, keep_bodies: bool = False, down: bool = False
    ) -> None:
        self.scripts = scripts or []
        self.keep_bodies = keep_bodies
        self.bodies: list[dict[str, Any]] = []
        self.asked: list[Asked] = []
        self.aside: list[str] = []
        self._dealt: dict[str, Dealt] = defaultdict(Dealt)
        self._number = 0
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        self._starts_down = down
        self._http: _Http | None = None
        self._thread: threading.Thread | None = None
        # Bound but never listening: no other process gets the port while the server is down.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))

    def __enter__(self) -> ModelServer:
        if not self._starts_down:
            self.come_up()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        self.go_down()
        self._place.close()

    def come_up(self) -> None:
        assert self._http is None, "it is up"
        self._http = _Http(self._place.getsockname(), _Handler)
        self._http.model = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def go_down(self) -> None:
        """Refuses connections from now on and resets those that are open."""
        http, self._http = self._http, None
        if http is None:
            return
        assert self._thread is not None
        http.shutdown()
        http.server_close()
        self._thread.join()
        http.reset_connections()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._place.getsockname()[1]}"

    def script(self, match: str, moves: Any) -> None:
        """A further script; earlier ones go first."""
        self.scripts.append(Script(match, moves))

    def next(self, turn: Turn) -> tuple[str, Move, int]:
        """Key, move and number for a turn. Without tools, a program talks to itself."""
        for script in self.scripts if turn.tools else []:
            key = script.key(turn)
            if key is not None:
                move = script.next(turn, key)
                return key, move, self._note(Asked(time.time(), key, turn.wire, move, turn))
        with self._lock:
            self._number += 1
            self.aside.append(turn.text[-200:])
            return "aside", say("{}" if turn.schema else "ok", tokens=(0, 0, 0)), self._number

    def _note(self, asked: Asked) -> int:
        with self._lock:
            self._number += 1
            self.asked.append(asked)
            return self._number

    def deal(self, key: str, tokens: tuple[int, int, int]) -> None:
        """Counts an answer that was written completely."""
        with self._lock:
            old = self._dealt[key]
            sent, output, cached = tokens
            self._dealt[key] = Dealt(
                old.input + sent, old.output + output, old.cached + cached, old.replies + 1
            )

    def dealt(self, key: str | None = None) -> Dealt:
        """Tokens of one conversation, or of all."""
        with self._lock:
            parts = list(self._dealt.values()) if key is None else [self._dealt[key]]
        return Dealt(*(sum(column) for column in zip(*parts, strict=True))) if parts else Dealt()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    block_on_close = False
    model: ModelServer

    def __init__(self, address: Any, handler: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def reset_connections(self) -> None:
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                reset(connection)
                connection.shutdown(socket.SHUT_RDWR)  # its thread closes it then

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Agents are killed in the middle of requests: that is not an error of the server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._json(200, None)

    def do_GET(self) -> None:
        if self.headers.get("upgrade", "").lower() == "websocket":
            self._json(
                426, {"error": {"message": "no websocket here", "type": "invalid_request_error"}}
            )
        elif self.path.split("?")[0].endswith("/models"):
            self._json(200, {"object": "list", "data": [], "models": []})
        else:
            self._json(404, {"error": {"message": "not found"}})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            return self._json(400, {"error": {"message": "not JSON"}})
        path = self.path.split("?")[0]
        if path.endswith(("/count_tokens", ":countTokens")):
            return self._json(200, {"input_tokens": 100, "totalTokens": 100})
        wire = _wire(path)
        if wire is None:
            return self._json(404, {"error": {"message": "not found", "type": "not_found_error"}})
        if self.server.model.keep_bodies:
            self.server.model.bodies.append(
                {"path": path, "headers": dict(self.headers), "body": body}
            )
        return self._answer(wire, wire.read(path, body))

    def _answer(self, wire: ModuleType, turn: Turn) -> None:
        model = self.server.model
        key, move, number = model.next(turn)
        if move.delay or move.hang:
            model.stopping.wait(move.delay or move.hang)
        made = reply(move, turn, number)
        if move.status:
            said = move.body or wire.failure(move.status, move.error or f"scripted {move.status}")
            return self._json(move.status, said, move.headers)
        if move.garbled:
            return self._stream(['data: {"type": "mess\n\n', "data: ]}\n\n"])
        if move.drop or move.hang:
            return self._drop(wire.stream(made)[:1] if move.drop else [])
        if move.broken and not turn.stream:
            return self._json(529, wire.failure(529, "Overloaded"))
        if move.broken:
            return self._stream(wire.broken(made))
        model.deal(key, move.tokens)
        if not turn.stream:
            return self._json(200, wire.whole(made))
        return self._stream(wire.stream(made))

    def _json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _head(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _stream(self, events: list[str]) -> None:
        self._head()
        for text in events:
            self._chunk(text)
        self.wfile.write(b"0\r\n\r\n")

    def _drop(self, events: list[str]) -> None:
        """Ends the connection with a reset, after the first events."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            if events:
                self._head()
                self._chunk("".join(events))
                self.wfile.flush()
            reset(self.connection)
            self.connection.close()


def reset(connection: socket.socket) -> None:
    """After it is closed, the reader gets an error, not an end of file."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _wire(path: str) -> ModuleType | None:
    if path.endswith("/messages"):
        return messages
    if path.endswith("/responses"):
        return responses
    if path.endswith("/chat/completions"):
        return chat
    return gemini if path.endswith((":generateContent", ":streamGenerateContent")) else None


__all__ = ["Asked", "Dealt", "ModelServer", "Script"]
