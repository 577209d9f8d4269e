"""One change of a task file, under the lock of its path.

What is about to be exchanged is noted in the lock file, so that the next process that takes the
lock can put in order what a killed one left behind.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from hypervisor.core.atomic_replace import (
    FileBusy,
    Replacement,
    digest,
    opened,
    wait_until_quiet,
)
from hypervisor.core.errors import InvalidInput
from hypervisor.core.renameat2 import HERE

LARGEST = 32 * 1024 * 1024
LONGEST_NOTE = 64 * 1024
UNUSABLE = (
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ETXTBSY,
    errno.ENXIO,
    errno.EINVAL,
)


class Original(NamedTuple):
    """A file as it was read."""

    data: bytes
    status: os.stat_result


class Lock(NamedTuple):
    """A lock that is held: its file, and the folder of all of them."""

    file: int
    folder: str


class Change:
    """One attempt to replace what was read by `new`: write, sync, swap, close."""

    def __init__(self, lock: Lock, path: str, original: Original, new: bytes) -> None:
        self.path = path
        self._lock = lock
        self._original = original
        self._new = new
        self._replacement = Replacement(
            HERE, path, spare_path(path, lock), digest(original.data), digest(new)
        )
        self._file = -1

    def write(self) -> None:
        """Write the new content beside the file, for now without waiting for the disk."""
        refuse_protected(self.path, self._original.status)
        hashes = (self._replacement.before.encode(), self._replacement.after.encode())
        with explaining(self.path):
            os.pwrite(self._lock.file, b"\0".join((*hashes, os.fsencode(self.path))), 0)
            self._file = self._replacement.create(self._new)
            self._copy_attributes()

    def sync(self) -> None:
        with explaining(self.path):
            os.fsync(self._file)

    def swap(self) -> bool:
        """False if the owner was quicker: then theirs is in place, as if we had not been."""
        self._close_file()  # or it would seem to be in the middle of being written
        with explaining(self.path):
            return _is_untouched(self.path, self._original.status) and self._replacement.swap()

    def close(self) -> None:
        """What may be the owner's stays, noted, for the next holder of the lock to settle."""
        self._close_file()
        self._replacement.discard()
        if not self._replacement.has_leftovers():
            os.ftruncate(self._lock.file, 0)

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _copy_attributes(self) -> None:
        wanted, actual = self._original.status, os.fstat(self._file)
        if (wanted.st_uid, wanted.st_gid) != (actual.st_uid, actual.st_gid):
            os.fchown(self._file, wanted.st_uid, wanted.st_gid)
        os.fchmod(self._file, stat.S_IMODE(wanted.st_mode))
        with suppress(OSError):  # a file system without them
            for name in os.listxattr(self.path):
                os.setxattr(self._file, name, os.getxattr(self.path, name))


def recover(lock: Lock) -> None:
    """Finish what a killed holder of the lock had begun."""
    note = os.pread(lock.file, LONGEST_NOTE, 0)
    if not note:
        return
    with suppress(ValueError, OSError, InvalidInput):  # a note cut off by a power cut
        before, after, name = note.split(b"\0")
        path = os.fsdecode(name)
        spare = spare_path(path, lock)
        Replacement(HERE, path, spare, before.decode(), after.decode()).recover()
    os.ftruncate(lock.file, 0)


def read_file(path: str, wait: bool = False) -> Original:
    """Read a file; with `wait`, once nobody is in the middle of writing it."""
    with explaining(path), opened(HERE, path) as handle:
        if wait and not wait_until_quiet(handle):
            raise FileBusy(path)
        return _read(path, handle)


def spare_path(path: str, lock: Lock) -> str:
    """The name beside a file by which it is replaced. Each folder of locks has its own: processes
    that share no locks are owners to each other."""
    folder, name = os.path.split(path)
    own = digest(os.fsencode(f"{lock.folder}\n{name}"))[:16]
    return os.path.join(folder, f".hv-{own}.ready")


def refuse_protected(path: str, status: os.stat_result) -> None:
    """Replacing needs no right to write the file itself, so that right is checked first."""
    if not status.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise InvalidInput(f"{path} is write-protected. It was left as it is.")


@contextmanager
def explaining(path: str) -> Iterator[None]:
    """What is wrong with the file itself is an InvalidInput that names it."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNUSABLE:
            raise OSError(error.errno, error.strerror, path) from None
        problem = f"{path} cannot be used ({error.strerror}). Nothing was changed."
        raise InvalidInput(problem) from None


def _read(path: str, handle: int) -> Original:
    status = os.fstat(handle)
    parts, size = [], 0
    while part := os.read(handle, (room := max(status.st_size - size, 0) + 1)):
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise InvalidInput(f"{path} is larger than {LARGEST >> 20} MB. Nothing was changed.")
        if len(part) < room:  # the end, unless it is growing: then the swap finds out
            break
    return Original(b"".join(parts), status)


def _is_untouched(path: str, then: os.stat_result) -> bool:
    now = os.stat(path)
    return os.path.samestat(now, then) and (now.st_size, now.st_mtime_ns, now.st_ctime_ns) == (
        then.st_size,
        then.st_mtime_ns,
        then.st_ctime_ns,
    )
