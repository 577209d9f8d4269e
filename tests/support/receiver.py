"""A scripted web receiver on loopback that records what it got."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """`answers` are the status codes of the next requests; afterwards it is 204 for all."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.got: list[Any] = []  # what was answered with 2xx
        self.headers: list[dict[str, str]] = []
        self.requests = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("Content-Length", 0))
        body = request.rfile.read(length)
        if len(body) < length:  # the sender died
            request.close_connection = True
            return
        self.requests += 1
        self.headers.append(dict(request.headers))
        code = self.answers.pop(0) if self.answers else 204
        if code < 300:
            self.got.append(json.loads(body))
        request.send_response(code)
        if code in (301, 302, 307):
            request.send_header("Location", self.url + "/elsewhere")
        request.send_header("Content-Length", "0")
        request.end_headers()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
