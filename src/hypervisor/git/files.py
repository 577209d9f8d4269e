"""Locks that the kernel releases when their holder dies, and writes that survive a power cut."""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Wait for the lock and hold it. Programs started while it is held do not inherit it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_file(path: str, text: str) -> None:
    """Replace a file in one step; after a power cut it is the old or the new one, whole."""
    spare = f"{path}.{os.getpid()}.part"
    with open(spare, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(spare, path)


def flush_file_system(folder: str) -> None:
    """Return when everything written to the file system of a folder is on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
    finally:
        os.close(handle)
