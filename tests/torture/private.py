"""A small file system that every process sees."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MNT_DETACH = 2


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A RAM disk of `size` bytes that every process sees; skips the test where none is allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder.mkdir(exist_ok=True)
    where = os.fsencode(folder)
    if libc.mount(b"tmpfs", where, b"tmpfs", 0, f"size={size},mode=0700".encode()):
        pytest.skip(f"cannot mount a small file system: {os.strerror(ctypes.get_errno())}")
    try:
        yield folder
    finally:
        libc.umount2(where, MNT_DETACH)
