"""A receiver of OTLP/HTTP on loopback: it keeps the spans it was sent, decoded."""

from __future__ import annotations

import gzip
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class OtlpReceiver:
    """`answers` are the status codes of the next requests; afterwards it is 200 for all."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.spans: list[Any] = []  # as the protocol has them, in the order of arrival
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answering = threading.Event()  # requests wait for it
        self.answering.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        body = request.rfile.read(int(request.headers["Content-Length"]))
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.headers.append({"path": request.path, **dict(request.headers)})
        self.answering.wait()
        code = self.answers.pop(0) if self.answers else 200
        if code == 200:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(attributes(resource.resource))
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        with suppress(ConnectionError):  # the sender died
            request.send_response(code)
            request.send_header("Content-Length", "0")
            request.end_headers()

    def named(self, start: str) -> list[Any]:
        return [span for span in self.spans if span.name.startswith(start)]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def attributes(thing: Any) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in thing.attributes
    }
