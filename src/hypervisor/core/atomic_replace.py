"""Replace a file in one step, while its owner may write to it at any moment.

The new content is written next to the file. Then the two exchange names in one system call, and the
replaced content is checked: if it is not the expected content, the owner was faster, and their
version is put back. Leftovers of a killed process are recognized by their names: an unfinished copy
(PART), the file that is exchanged, and, on file systems that cannot exchange, a second name of the
old file (OLD).

Nothing here follows a link. A name is relative to an open folder, or is a path with HERE as folder.
Invariant: a version of the owner's that is not the expected one is never removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.renameat2 import EXCHANGE, NO_REPLACE, renameat2

PATIENCE = 5.0  # seconds that another program may take to write a file before we give up
BLOCK = 1 << 20
PART, OLD = ".part", ".old"
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class FileBusy(InvalidInput):
    """Another program keeps the file open for writing."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"another program keeps writing to {name}. The file was not changed; try again when "
            f"that program has finished."
        )


class Replacement(NamedTuple):
    """The file `name` and a temporary name next to it that no other process uses. `before` and
    `after` are the SHA-256 of the expected content and of the new one."""

    folder: int
    name: str
    spare: str
    before: str
    after: str

    def create(self, content: bytes, mode: int = 0o600) -> int:
        """Write the copy that will take the file's place. Returns it opened: the caller sets its
        attributes, syncs and closes it."""
        self.discard()
        handle = os.open(self.spare + PART, CREATE, mode, dir_fd=self.folder)
        try:
            with open(handle, "wb", closefd=False) as file:
                file.write(content)
        except OSError:
            os.close(handle)
            self.discard()
            raise
        return handle

    def discard(self) -> None:
        """Remove the copy as long as it has not been exchanged."""
        self._unlink(self.spare + PART)

    def swap(self) -> bool:
        """Put the copy in place. False if the owner was faster: then theirs is in place."""
        if self._exists(self.spare):
            self._set_aside()
        self._rename(self.spare + PART, self.spare)
        try:
            self._exchange(self.before)
        except (OSError, FileBusy):
            self._unlink(self.spare)
            raise
        return self._settle()

    def recover(self) -> None:
        """Finish or undo what a killed process began."""
        self.discard()
        if self._exists(self.spare):
            self._unlink(self.spare + OLD)
        else:
            with suppress(FileNotFoundError):
                self._rename(self.spare + OLD, self.spare)
        if self._exists(self.spare):
            self._settle()

    def has_leftovers(self) -> bool:
        return self._exists(self.spare) or self._exists(self.spare + OLD)

    def _settle(self) -> bool:
        """Check the replaced file. A newer version of the owner's is put back, for False."""
        try:
            replaced, quiet = _hash_when_quiet(self.folder, self.spare)
        except FileNotFoundError:  # the file was renamed, not exchanged
            return True
        if quiet and replaced in (self.before, self.after):
            self._unlink(self.spare)
            return True
        if self._hash(self.name) == self.after:
            self._exchange()
            if _hash_when_quiet(self.folder, self.spare)[0] == self.after:
                self._unlink(self.spare)
                if not quiet:
                    raise FileBusy(self.name)
                return False
            self._exchange()  # the owner wrote on top of ours: that is the latest version
        self._keep()
        return False

    def _exchange(self, expected: str | None = None) -> None:
        """Exchange the names. Where the file system cannot, a second name holds the file that is
        replaced; where it has no hard links either, the file must be as expected."""
        if renameat2(self.folder, self.spare, self.folder, self.name, EXCHANGE):
            return
        old = self.spare + OLD
        self._unlink(old)
        try:
            link(self.folder, self.name, self.folder, old)
        except FileNotFoundError:
            raise
        except OSError:
            if expected is None or self._hash(self.name) != expected:
                raise FileBusy(self.name) from None
            self._rename(self.spare, self.name)
        else:
            self._rename(self.spare, self.name)
            self._rename(old, self.spare)

    def _set_aside(self) -> None:
        """A file left by a power cut may be the owner's: keep it unless it is empty or a copy."""
        content = self._hash(self.spare)
        if content in (digest(b""), self._hash(self.name)) and content is not None:
            self._unlink(self.spare)
        else:
            self._keep()

    def _keep(self) -> None:
        content = self._hash(self.spare) or digest(b"")
        self._rename(self.spare, f"{self.name}.kept-{content[:8]}")

    def _hash(self, name: str) -> str | None:
        with suppress(OSError):
            return file_hash(self.folder, name)
        return None

    def _exists(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _unlink(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.folder)

    def _rename(self, name: str, target: str) -> None:
        os.rename(name, target, src_dir_fd=self.folder, dst_dir_fd=self.folder)


@contextmanager
def opened(folder: int, name: str) -> Iterator[int]:
    """A regular file, opened for reading."""
    handle = os.open(name, READ, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        yield handle
    finally:
        os.close(handle)


def blocks(handle: int, limit: int = 1 << 62) -> Iterator[bytes]:
    while limit > 0 and (block := os.read(handle, min(BLOCK, limit))):
        limit -= len(block)
        yield block


def digest(data: bytes) -> str:
    from hashlib import sha256

    return sha256(data).hexdigest()


def file_hash(folder: int, name: str) -> str:
    with opened(folder, name) as handle:
        return _hash_of(handle)


def wait_until_quiet(handle: int) -> bool:
    """Wait until no process has the file open for writing; False if that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while _is_being_written(handle):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def rename_new(old: int, name: str, new: int, target: str) -> None:
    """Rename without ever replacing an existing file."""
    if not renameat2(old, name, new, target, NO_REPLACE):
        link(old, name, new, target)
        os.unlink(name, dir_fd=old)


def link(old: int, name: str, new: int, target: str) -> None:
    os.link(name, target, src_dir_fd=old, dst_dir_fd=new, follow_symlinks=False)


def _hash_when_quiet(folder: int, name: str) -> tuple[str | None, bool]:
    """The hash, None if it is not a readable file; and whether no process is writing it."""
    try:
        with opened(folder, name) as handle:
            quiet = wait_until_quiet(handle)
            return _hash_of(handle), quiet
    except FileNotFoundError:
        raise
    except OSError:
        return None, True


def _hash_of(handle: int) -> str:
    from hashlib import sha256

    content = sha256()
    for block in blocks(handle):
        content.update(block)
    return content.hexdigest()


def _is_being_written(handle: int) -> bool:
    """The kernel grants a read lease only while no process has the file open for writing."""
    try:
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)  # the default, SIGIO, would kill us
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN  # other errors: no leases here, so we cannot know
    return False
