"""A small file system for one process, in a mount namespace of its own."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18


def mount_small(folder: str, size: int) -> str | None:
    """Put a RAM disk of `size` bytes on `folder` for this process; else say why not."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    flags = CLONE_NEWNS if user == 0 else CLONE_NEWNS | CLONE_NEWUSER
    if libc.unshare(flags):
        return f"no mount namespace of our own: {os.strerror(ctypes.get_errno())}"
    if user:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {user} 1"),
            ("gid_map", f"0 {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        return f"the mount namespace cannot be made private: {os.strerror(ctypes.get_errno())}"
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={size}".encode()):
        return f"no small file system: {os.strerror(ctypes.get_errno())}"
    return None


def fill(path: str) -> None:
    """Write a file until not one more byte fits on its disk."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for size in (1 << 16, 1 << 10, 1):
            with suppress(OSError):
                while os.write(file, b"x" * size):
                    pass
    finally:
        os.close(file)
