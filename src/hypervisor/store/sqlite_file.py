"""The file of an SQLite store: which one it is, and where it must not be."""

from __future__ import annotations

import os
from contextlib import suppress

from hypervisor.core.errors import StoreUnavailable
from hypervisor.core.mounts import network_file_system

KEPT_MEMORY = 1 << 20


def file_at(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def keep_freed_memory() -> None:
    """When another process has written, SQLite frees the pages it has cached. glibc would return
    that memory to the system each time and fault it in again page by page; once it has seen a
    large block being freed, it keeps up to twice as much."""
    bytes(KEPT_MEMORY)


def refuse_network_file_system(path: str) -> None:
    kind = None
    with suppress(OSError):
        kind = network_file_system(os.path.dirname(os.path.abspath(path)))
    if kind:
        raise StoreUnavailable(
            f"{path} is on a network file system ({kind}), where SQLite locks are unreliable. "
            "Nothing was changed; use a local path or a postgresql:// store."
        )


def refuse_second_name(path: str) -> None:
    """Each name would have a log and a lock of its own."""
    with suppress(OSError):
        if os.stat(path).st_nlink > 1:
            raise StoreUnavailable(
                f"{path} has a second hard link, and writes through it would bypass the lock. "
                f"Nothing was changed; make a separate copy: cp '{path}' NEW, "
                f"then mv NEW '{path}'."
            )
