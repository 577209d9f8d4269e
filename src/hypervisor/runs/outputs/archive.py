"""Packs: files that hold many short outputs, `outputs/<group>/<worker>.pack`.

A record is a line `<task>.<attempt> <length>`, that many bytes, and a newline. A pack has one
writer, the worker it is named after, so a kill can leave half a record only at the end, where
readers stop. While the writer has it open, no other process removes records.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import IO

from hypervisor.core.records import NamedTuple

ENDING = ".pack"
NEW = ".new"
MAX_HEAD_LENGTH = 100
LAST = 64
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC

Key = tuple[str, int]  # a task and the number of its attempt


class Writer:
    """One worker's packs, of which it has one open at a time."""

    def __init__(self, worker: str) -> None:
        self._name = worker + ENDING
        self._folder = ""
        self._handle = -1
        self._size = 0

    def append(self, folder: str, task: str, attempt: int, text: bytes) -> None:
        """Add a whole record or nothing. OSError: it could not be added."""
        if folder != self._folder or not os.fstat(self._handle).st_nlink:
            self._open(folder)
        record = _record_bytes(task, attempt, text)
        try:
            if os.write(self._handle, record) < len(record):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            self.close()  # if that failed too, the next `_open` truncates it
            raise
        self._size += len(record)

    def _open(self, folder: str) -> None:
        self.close()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path, links = f"{folder}/{self._name}", 0
        while not links:
            self._handle = os.open(path, FLAGS, 0o600)
            try:
                fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                links = os.fstat(self._handle).st_nlink
                self._size = index_of(path).upto if links else 0
                os.ftruncate(self._handle, self._size)  # half a record of an earlier writer
            except OSError:  # also while records are being removed, however long that takes
                self.close()
                raise
            if not links:  # it has just been replaced
                self.close()
        self._folder = folder

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle, self._folder = -1, ""


class Index(NamedTuple):
    """The records of a pack up to the offset `upto`: where each starts, and the length of its text.
    The last bytes read show whether the pack has been rewritten since."""

    pack: str
    inode: int
    upto: int
    last: bytes
    records: dict[Key, tuple[int, int]]


class Packs:
    """Finds records; caches the indexes of the last folder."""

    def __init__(self) -> None:
        self._folder = ""
        self._known: dict[str, Index] = {}

    def size(self, folder: str, task: str, attempt: int) -> int | None:
        records = (index.records.get((task, attempt)) for index in self.of(folder))
        return next((record[1] for record in records if record is not None), None)

    def read(self, folder: str, task: str, attempt: int, start: int, most: int) -> bytes | None:
        """A piece of an output; None if there is none. Looks again if records were removed in
        between."""
        for _ in range(2):
            for index in self.of(folder):
                if (task, attempt) in index.records:
                    with suppress(OSError):
                        if (text := text_of(index, (task, attempt))) is not None:
                            return text[start : start + most]
            self._known = {}
        return None

    def of(self, folder: str) -> Iterator[Index]:
        """The packs of a folder."""
        known = self._known if folder == self._folder else {}
        self._folder, self._known = folder, known
        names: list[str] = []
        with suppress(OSError):
            names = [name for name in os.listdir(folder) if name.endswith(ENDING)]
        for name in names:
            path = f"{folder}/{name}"
            try:
                index = known[path] = index_of(path, known.get(path))
            except OSError:
                continue
            yield index


def index_of(path: str, known: Index | None = None) -> Index:
    """The index of a pack. Only what was added since `known` is read."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if known is None or known.inode != status.st_ino or not _has_same_start(file, known):
            known = Index(path, status.st_ino, 0, b"", {})
        if known.upto == status.st_size:
            return known
        file.seek(known.upto)
        text = file.read()
    at = 0
    while (record := _record(text, at)) is not None:
        key, start, length = record
        known.records[key] = known.upto + at, length
        at = start + length + 1
    last = text[max(at - LAST, 0) : at] or known.last
    return known._replace(upto=known.upto + at, last=last)


def _has_same_start(file: IO[bytes], known: Index) -> bool:
    file.seek(known.upto - len(known.last))
    return file.read(len(known.last)) == known.last


def text_of(index: Index, key: Key) -> bytes | None:
    """The text of a record found earlier; None if it no longer exists."""
    at, length = index.records[key]
    head = _head(*key, length)
    with open(index.pack, "rb") as file:
        file.seek(at)
        if file.read(len(head)) != head:
            return None
        text = file.read(length)
    return text if len(text) == length else None


def _record_bytes(task: str, attempt: int, text: bytes) -> bytes:
    return _head(task, attempt, len(text)) + text + b"\n"


def _head(task: str, attempt: int, length: int) -> bytes:
    return b"%s.%d %d\n" % (task.encode(), attempt, length)


def _record(text: bytes, at: int) -> tuple[Key, int, int] | None:
    """The record at an offset: its key, where its text starts, and the length of the text. None at
    the end and for an unfinished record."""
    head, newline, _ = text[at : at + MAX_HEAD_LENGTH].partition(b"\n")
    name, _, length = head.partition(b" ")
    task, _, attempt = name.partition(b".")
    if not (newline and attempt.isdigit() and length.isdigit()):
        return None
    start = at + len(head) + 1
    end = start + int(length)
    if text[end : end + 1] != b"\n":
        return None
    return (task.decode("ascii", "replace"), int(attempt)), start, int(length)


def remove_records(path: str, keys: Collection[Key]) -> bool:
    """Remove records. False if the pack is in use: then nothing was removed."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(file.fileno()).st_nlink:
                return False  # another process has just done so
            index = index_of(path)
            remaining = [key for key in index.records if key not in keys]
            if remaining:
                _rewrite(index, remaining)
            else:
                os.unlink(path)
    except OSError:
        return False
    return True


def _rewrite(index: Index, keys: list[Key]) -> None:
    """Keeps the file's times: retention goes by age."""
    fresh, times = index.pack + NEW, os.stat(index.pack)
    with open(os.open(fresh, FLAGS | os.O_TRUNC, 0o600), "wb") as file:
        for key in keys:
            file.write(_record_bytes(*key, text_of(index, key) or b""))
    os.utime(fresh, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.rename(fresh, index.pack)
