"""A relay between browser and dashboard that writes down every request, also those of workers."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import suppress
from typing import NamedTuple

HEAD = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.1\r\n(.*?)\r\n\r\n", re.DOTALL)


class Sent(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    at: float


class Wiretap:
    """Listens on a port of its own. The server behind it may be killed and started again."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._lock = threading.Lock()
        self._sent: list[Sent] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def sent(self, part: str = "") -> list[Sent]:
        """The requests whose path contains a text, since the last `forget`."""
        with self._lock:
            return [request for request in self._sent if part in request.path]

    def forget(self) -> None:
        with self._lock:
            self._sent.clear()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                browser, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(browser,), daemon=True).start()

    def _relay(self, browser: socket.socket) -> None:
        with browser:
            try:
                server = socket.create_connection(("127.0.0.1", self._behind))
            except OSError:
                return  # as if it had been refused
            with server:
                back = threading.Thread(target=_pump, args=(server, browser), daemon=True)
                back.start()
                rest = b""
                while data := _read(browser):
                    rest = self._note(rest + data)
                    try:
                        server.sendall(data)
                    except OSError:
                        break
                _hang_up(server)
                back.join()

    def _note(self, data: bytes) -> bytes:
        """Writes down the whole heads; returns what may be the beginning of the next."""
        end = 0
        for head in HEAD.finditer(data):
            lines = head[3].decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
            sent = Sent(head[1].decode(), head[2].decode(), headers, time.monotonic())
            with self._lock:
                self._sent.append(sent)
            end = head.end()
        return data[end:]


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := _read(source):
            target.sendall(data)
    _hang_up(target)


def _read(source: socket.socket) -> bytes:
    try:
        return source.recv(1 << 16)
    except OSError:
        return b""


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
