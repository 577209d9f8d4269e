"""A proxy before a PostgreSQL server that loses, delays, resets and swallows connections."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from typing import Literal

Fault = Literal["cut", "reset", "half-open", "delay", "refuse"]
FAULTS: tuple[Fault, ...] = ("cut", "reset", "half-open", "delay", "refuse")
Address = str | tuple[str, int]  # the path of a socket, or host and port
CHUNK = 1 << 16


class Proxy:
    """Listens on loopback. A thread for each connection."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._is_closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self, fault: Fault, seconds: float) -> None:
        """Fail for this long; what was cut off stays cut off."""
        self._fault = fault
        if fault in ("cut", "reset", "refuse"):
            self._drop(reset=fault == "reset")
        time.sleep(seconds)
        if fault == "half-open":  # the other side notices in the end
            self._drop(reset=True)
        self._fault = None

    def close(self) -> None:
        self._is_closed = True
        self._listening.close()
        self._drop(reset=False)

    def _drop(self, reset: bool) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for side in pair:
                with contextlib.suppress(OSError):
                    if reset:  # an RST instead of a FIN
                        side.setsockopt(
                            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                        )
                    side.shutdown(socket.SHUT_RDWR)
                with contextlib.suppress(OSError):
                    side.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._fault == "refuse":
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = self._connect()
        except OSError:
            client.close()
            return
        pair = (client, server)
        with self._lock:
            self._pairs.add(pair)
        with contextlib.suppress(OSError, ValueError):  # dropped
            while self._pass_on(client, server):
                pass
        with self._lock:
            self._pairs.discard(pair)
        client.close()
        server.close()

    def _connect(self) -> socket.socket:
        if isinstance(self._target, str):
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            return server
        return socket.create_connection(self._target, timeout=10)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> bool:
        for side in select.select([client, server], [], [], 0.1)[0]:
            while self._fault == "half-open":  # nothing arrives, nothing is refused
                time.sleep(0.02)
            if self._fault == "delay":
                time.sleep(0.05)
            data = side.recv(CHUNK)
            if not data:
                return False
            (server if side is client else client).sendall(data)
        return True
