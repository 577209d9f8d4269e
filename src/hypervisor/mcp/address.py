"""Where the MCP server of a store listens on this host, and how one process becomes that server.

The address depends on the store, this boot and the program's own files: a server of another
version is never met. The folder belongs to this user alone.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

from hypervisor import __version__
from hypervisor.core.places import digest, private_folder
from hypervisor.resources.host import LocalHost

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QUEUE = 128  # connections that the kernel keeps until they are accepted


def address_of(store: str, environment: Mapping[str, str]) -> str:
    """The path of the socket. `store` is a resolved path or a URL."""
    where = store if "://" in store else os.path.realpath(store)
    parts = [where, LocalHost().boot(), __version__, PACKAGE, str(_newest(PACKAGE))]
    if "://" in store:  # these have a say in what it means
        parts += sorted(f"{k}={v}" for k, v in environment.items() if is_database_variable(k))
    return os.path.join(private_folder("mcp"), f"{digest(*parts)}.sock")


def is_database_variable(name: str) -> bool:
    return name.startswith("PG") or name == "XDG_DATA_HOME"


def _newest(folder: str) -> int:
    """When the program was last changed: a checkout changes more often than its version."""
    newest = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                newest = max(newest, entry.stat().st_mtime_ns)
            elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                newest = max(newest, _newest(entry.path))
    return newest


def connect(address: str) -> socket.socket | None:
    """A connection to the server, or None."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(address)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    return connection


def listen(address: str) -> socket.socket | None:
    """Become the server: a socket that listens there. None if there is a server."""
    with _Lock(address):
        if (other := connect(address)) is not None:
            other.close()
            return None
        with suppress(FileNotFoundError):  # of one that was killed
            os.unlink(address)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(address)
        os.chmod(address, 0o600)
        listening.listen(QUEUE)
        return listening


def leave(address: str, inode: int) -> None:
    """Be the server no longer, unless another one has taken the place of that file."""
    with _Lock(address), suppress(FileNotFoundError):
        if os.stat(address).st_ino == inode:
            os.unlink(address)


class _Lock:
    """Held while a server comes or goes."""

    def __init__(self, address: str) -> None:
        self._path = os.path.join(os.path.dirname(address), "lock")

    def __enter__(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
