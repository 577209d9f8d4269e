"""One change of a task file, under the lock of its path.

The change is noted in the lock file, so that the next process that takes the lock can clean up
after a killed one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hypervisor.core.atomic_replace import (
    FileBusy,
    Replacement,
    digest,
    opened,
    wait_until_quiet,
)
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.renameat2 import HERE

MAX_SIZE = 32 * 1024 * 1024
MAX_NOTE_LENGTH = 64 * 1024
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
    """A lock that is held: its file, and the folder of all locks."""

    file: int
    folder: str


class Change:
    """An attempt to replace `original` with `new`: write, sync, swap, close."""

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
        """Write the new content next to the file, without waiting for the disk."""
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
        """Put it in place. False if the owner was faster: then their version is in place."""
        self._close_file()  # while it is open, it counts as being written
        with explaining(self.path):
            return _is_untouched(self.path, self._original.status) and self._replacement.swap()

    def close(self) -> None:
        """Clean up; a file that may be the owner's stays, noted for the next holder of the lock."""
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
        with suppress(OSError):  # not supported by the file system
            for name in os.listxattr(self.path):
                os.setxattr(self._file, name, os.getxattr(self.path, name))


def recover(lock: Lock) -> None:
    """Finish what a killed holder of the lock began."""
    note = os.pread(lock.file, MAX_NOTE_LENGTH, 0)
    if not note:
        return
    with suppress(ValueError, OSError, InvalidInput):  # a note cut off by a power cut
        before, after, name = note.split(b"\0")
        path = os.fsdecode(name)
        spare = spare_path(path, lock)
        Replacement(HERE, path, spare, before.decode(), after.decode()).recover()
    os.ftruncate(lock.file, 0)


def read_file(path: str, wait: bool = False) -> Original:
    """Read a file; with `wait`, once no process is writing it."""
    with explaining(path), opened(HERE, path) as handle:
        if wait and not wait_until_quiet(handle):
            raise FileBusy(path)
        return _read(path, handle)


def spare_path(path: str, lock: Lock) -> str:
    """The temporary name of a file's replacement. It depends on the folder of locks: processes
    that share no locks treat each other as owners."""
    folder, name = os.path.split(path)
    own = digest(os.fsencode(f"{lock.folder}\n{name}"))[:16]
    return os.path.join(folder, f".hv-{own}.ready")


def refuse_protected(path: str, status: os.stat_result) -> None:
    """Replacing a file does not need write permission for it, so that is checked first."""
    if not status.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise InvalidInput(f"{path} is write-protected. It was not changed.")


@contextmanager
def explaining(path: str) -> Iterator[None]:
    """Raise problems with the file itself as InvalidInput, with its name."""
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
        if size > MAX_SIZE:
            raise InvalidInput(f"{path} is larger than {MAX_SIZE >> 20} MB. Nothing was changed.")
        if len(part) < room:  # the end, unless it is growing, which the swap detects
            break
    return Original(b"".join(parts), status)


def _is_untouched(path: str, then: os.stat_result) -> bool:
    now = os.stat(path)
    return os.path.samestat(now, then) and (now.st_size, now.st_mtime_ns, now.st_ctime_ns) == (
        then.st_size,
        then.st_mtime_ns,
        then.st_ctime_ns,
    )
