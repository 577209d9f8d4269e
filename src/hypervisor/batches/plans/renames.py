"""Files in an opened folder: read, written to the disk, renamed without losing another.

Nothing here follows a link. Where the system cannot exchange two names or refuse to
replace one, a second name for the old file takes its place for a moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hypervisor.batches.plans.action import Step
from hypervisor.core.renameat2 import EXCHANGE, NO_REPLACE, renameat2

PIECE = 1 << 20
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
SECOND = ".old"


@contextmanager
def opened(folder: int, name: str) -> Iterator[int]:
    handle = os.open(name, FILE, dir_fd=folder)
    try:
        yield handle
    finally:
        os.close(handle)


def pieces(handle: int, most: int = 1 << 62) -> Iterator[bytes]:
    while most > 0 and (piece := os.read(handle, min(PIECE, most))):
        most -= len(piece)
        yield piece


def hash_at(folder: int, name: str) -> str:
    from hashlib import sha256

    seen = sha256()
    with opened(folder, name) as file:
        for piece in pieces(file):
            seen.update(piece)
    return seen.hexdigest()


def write(folder: int, name: str, content: bytes, step: Step) -> None:
    """A new file beside the one it shall become, on the disk before it does."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    handle = os.open(name, FRESH, 0o666 if step.mode is None else 0o600, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if step.owner is not None:
                with suppress(PermissionError):  # not ours to give away
                    os.fchown(handle, *step.owner)
            if step.mode is not None:
                os.fchmod(handle, step.mode)
            if step.mtime is not None:
                os.utime(handle, ns=(step.mtime, step.mtime))
            os.fsync(handle)
    except OSError:
        os.unlink(name, dir_fd=folder)
        raise


def swap(folder: int, one: str, other: str) -> None:
    """Exchange two files, or where the file system cannot, put the first over the other,
    with a second name for what it replaces."""
    if renameat2(folder, one, folder, other, EXCHANGE):
        return
    aside = one + SECOND
    with suppress(FileNotFoundError):
        os.unlink(aside, dir_fd=folder)
    os.link(other, aside, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    os.rename(one, other, src_dir_fd=folder, dst_dir_fd=folder)
    os.rename(aside, one, src_dir_fd=folder, dst_dir_fd=folder)


def rename_new(old: int, name: str, new: int, target: str) -> None:
    """Rename without ever replacing what is there."""
    if not renameat2(old, name, new, target, NO_REPLACE):
        os.link(name, target, src_dir_fd=old, dst_dir_fd=new, follow_symlinks=False)
        os.unlink(name, dir_fd=old)
