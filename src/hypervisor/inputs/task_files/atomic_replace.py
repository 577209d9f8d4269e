"""Swapping a new content in for a file that others may write at any moment.

What is about to be swapped is noted in the lock's file first, so that after a kill at any
point it is known which of the two files is ours to remove and which is the owner's to keep.
Invariant: an owner's version that is not the one we read is never removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import time
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

from hypervisor.core.errors import InvalidInput
from hypervisor.core.renameat2 import EXCHANGE, HERE, renameat2

LARGEST = 32 * 1024 * 1024
PATIENCE = 5.0  # seconds that another program may take to write a file before we give up
LONGEST_NOTE = 64 * 1024
WRITING, SWAPPING = b"w", b"s"  # how a note begins: the spare is ours; it may be the owner's
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
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class Found(NamedTuple):
    """A file as it was read."""

    data: bytes
    status: os.stat_result


class Lock(NamedTuple):
    """A lock that is held: its file, and the folder of all of them."""

    file: int
    folder: str


class Swap:
    """One try to put `new` in the place of what was found: written, synced, made, closed."""

    def __init__(self, lock: Lock, real: str, found: Found, new: bytes) -> None:
        self.real = real
        self._lock = lock
        self._found = found
        self._new = new
        self._spare = spare_of(real, lock)
        self._file = -1
        self._swapping = False
        self._settled = True

    def write(self) -> None:
        """Write the new content beside the file, for now without waiting for the disk."""
        refuse_protected(self.real, self._found.status)
        try:
            self._file = self._created()
            self._settled = False
            _note(self._lock.file, self.real, mark(self._found.data), mark(self._new))
            done = 0
            with memoryview(self._new) as rest:
                while done < len(rest):
                    done += os.write(self._file, rest[done:])
            self._make_alike(self._file)
        except OSError as error:
            raise explained(self.real, error) from None

    def sync(self) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            raise explained(self.real, error) from None

    def made(self) -> bool:
        """False if the owner was quicker: then theirs is in place, as if we had not been."""
        self._close_file()  # or it would seem to be in the middle of being written
        try:
            if not _untouched(self.real, self._found):
                return False
            self._swapping = True
            os.pwrite(self._lock.file, SWAPPING, 0)
            _exchange(self._spare, self.real, self._found.data)
            made = settle(self.real, self._spare, self._found.data, self._new)
            self._settled = made
            return made
        except OSError as error:
            raise explained(self.real, error) from None

    def close(self) -> None:
        """What is not surely ours stays, noted, for the next holder of the lock to settle."""
        self._close_file()
        if not self._settled and os.path.lexists(self._spare):
            ours = (self._found.data, self._new)
            if self._swapping and _content_of(self._spare) not in ours:
                return
            os.unlink(self._spare)
        os.ftruncate(self._lock.file, 0)

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _created(self) -> int:
        try:
            return os.open(self._spare, CREATE, 0o600)
        except FileExistsError:
            _set_aside(self.real, self._spare)
            return os.open(self._spare, CREATE, 0o600)

    def _make_alike(self, file: int) -> None:
        like, made = self._found.status, os.fstat(file)
        if (like.st_uid, like.st_gid) != (made.st_uid, made.st_gid):
            os.fchown(file, like.st_uid, like.st_gid)
        os.fchmod(file, stat.S_IMODE(like.st_mode))
        with suppress(OSError):  # a file system without them
            for name in os.listxattr(self.real):
                os.setxattr(file, name, os.getxattr(self.real, name))


def settle(real: str, spare: str, old: bytes | str, new: bytes | str) -> bool:
    """Look at what was swapped out. What the owner wrote goes back; True if that was nothing.

    `old` and `new` are the contents, or the marks of them."""
    try:
        out, quiet = _read_once_unwritten(spare)
    except InvalidInput:  # no file that we could have read
        if not os.path.lexists(spare):  # it was renamed, not swapped
            return True
        out, quiet = None, True
    if out and quiet and (_is(out.data, old) or _is(out.data, new)):
        os.unlink(spare)
        return True
    if _is(_content_of(real), new):
        _exchange(spare, real, None)
        if _is(_read_once_unwritten(spare)[0].data, new):
            os.unlink(spare)
            if not quiet:
                raise busy(real)
            return False
        _exchange(spare, real, None)  # they wrote on top of ours meanwhile: that is the latest
    _keep(real, spare)
    return False


def recover(lock: Lock) -> None:
    """Finish what a killed holder of the lock had begun."""
    note = os.pread(lock.file, LONGEST_NOTE, 0)
    if not note:
        return
    with suppress(ValueError, OSError, InvalidInput):  # a note cut off by a power cut
        phase, old, new, path = note.split(b"\0")
        real = os.fsdecode(path)
        spare = spare_of(real, lock)
        if phase == WRITING:
            with suppress(FileNotFoundError):
                os.unlink(spare)
        elif os.path.lexists(spare):
            settle(real, spare, old.decode(), new.decode())
    os.ftruncate(lock.file, 0)


def read_file(real: str) -> Found:
    file = _open(real)
    try:
        return _read(real, file)
    finally:
        os.close(file)


def read_settled(real: str) -> Found:
    """Read a file once nobody is in the middle of writing it."""
    found, quiet = _read_once_unwritten(real)
    if not quiet:
        raise busy(real)
    return found


def spare_of(real: str, lock: Lock) -> str:
    """The name beside a file by which it is swapped. Its own for every folder of locks: those
    who share none are owners to each other."""
    folder, name = os.path.split(real)
    own = mark(os.fsencode(f"{lock.folder}\n{name}"))[:16]
    return os.path.join(folder, f".hv-{own}.ready")


def mark(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def is_same_file(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def refuse_protected(real: str, status: os.stat_result) -> None:
    """Swapping needs no right to write the file itself, so that right is asked for first."""
    if not status.st_mode & 0o222 or not os.access(real, os.W_OK):
        raise InvalidInput(f"{real} is write-protected. It was left as it is.")


def explained(real: str, error: OSError) -> Exception:
    if error.errno in UNUSABLE:
        return InvalidInput(f"{real} cannot be used ({error.strerror}). Nothing was changed.")
    return OSError(error.errno, error.strerror, real)


def busy(real: str) -> InvalidInput:
    return InvalidInput(
        f"{real} is being written by another program all the time. It was left as it is; "
        "try again when that has ended."
    )


def _read(real: str, file: int) -> Found:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput(f"{real} is no regular file. Nothing was changed.")
    pieces, size = [], 0
    while piece := os.read(file, (room := max(status.st_size - size, 0) + 1)):
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST:
            raise InvalidInput(f"{real} is larger than {LARGEST >> 20} MB. Nothing was changed.")
        if len(piece) < room:  # the end, unless it grows just now: then the swap finds out
            break
    return Found(b"".join(pieces), status)


def _content_of(real: str) -> bytes | None:
    try:
        return read_file(real).data
    except InvalidInput:
        return None


def _is(data: bytes | None, known: bytes | str) -> bool:
    if data is None:
        return False
    return data == known if isinstance(known, bytes) else mark(data) == known


def _untouched(real: str, found: Found) -> bool:
    now, then = os.stat(real), found.status
    return is_same_file(now, then) and (now.st_size, now.st_mtime_ns, now.st_ctime_ns) == (
        then.st_size,
        then.st_mtime_ns,
        then.st_ctime_ns,
    )


def _note(lock: int, real: str, old: str, new: str) -> None:
    os.pwrite(lock, b"\0".join([WRITING, old.encode(), new.encode(), os.fsencode(real)]), 0)


def _set_aside(real: str, spare: str) -> None:
    """A spare without a note (a power cut took it) may be anybody's: unless it holds nothing
    of its own, it is kept, by a new name."""
    left = _content_of(spare)
    if left == b"" or (left is not None and left == _content_of(real)):
        os.unlink(spare)
    else:
        _keep(real, spare)


def _keep(real: str, spare: str) -> None:
    os.rename(spare, f"{real}.kept-{mark(_content_of(spare) or b'')[:8]}")


def _read_once_unwritten(real: str) -> tuple[Found, bool]:
    """The content, and False if somebody still has the file open for writing after a while."""
    file = _open(real)
    try:
        until = time.monotonic() + PATIENCE
        while _is_being_written(file):
            if time.monotonic() > until:
                return _read(real, file), False
            time.sleep(0.002)
        return _read(real, file), True
    finally:
        os.close(file)


def _open(real: str) -> int:
    try:
        return os.open(real, READ)
    except OSError as error:
        raise explained(real, error) from None


def _is_being_written(file: int) -> bool:
    """The kernel grants a read lease only while nobody has the file open for writing."""
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # the usual one would end us
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN  # else: no leases here, so nothing is known
    return False


def _exchange(one: str, other: str, expected: bytes | None) -> None:
    """Two files change names in one step. Where that is impossible, `one` replaces `other`,
    provided that `other` still is as expected."""
    if renameat2(HERE, one, HERE, other, EXCHANGE):
        return
    if expected is None or read_file(other).data != expected:
        raise busy(other)
    os.rename(one, other)
