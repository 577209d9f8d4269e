"""The socket of the gateway: on loopback, on the same port as long as that is free."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

FILE = "gateway.port"
HOST = "127.0.0.1"
QUEUE = 1024  # connections that the kernel keeps while a gateway is replaced


def listen(runtime: str) -> socket.socket:
    """A listening socket: on the remembered port, or on another one, which is remembered."""
    import socket

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, remembered_port(runtime) or 0))
    except OSError:  # another program has taken it
        listening.bind((HOST, 0))
    listening.listen(QUEUE)
    _remember(runtime, listening.getsockname()[1])
    return listening


def remembered_port(runtime: str) -> int | None:
    with suppress(OSError, ValueError), open(_path(runtime), encoding="ascii") as file:
        return int(file.read())
    return None


def _remember(runtime: str, port: int) -> None:
    new = f"{_path(runtime)}.{os.getpid()}.new"
    with open(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{port}\n")
    os.rename(new, _path(runtime))


def _path(runtime: str) -> str:
    return os.path.join(runtime, FILE)
