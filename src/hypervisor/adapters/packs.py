"""Short outputs, many to a file: `outputs/<group>/<worker>.pack`.

A record is a line `<task>.<attempt> <length>`, so many bytes, and a newline. A pack has one
writer, the worker that it is named after, so that a kill can leave half a record only at its
end, where readers stop. As long as the writer has it open, nobody else takes records out.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

ENDING = ".pack"
NEW = ".new"
LONGEST_HEAD = 100
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
        """Add a record, wholly or not at all. OSError: it could not be added."""
        if folder != self._folder or not os.fstat(self._handle).st_nlink:
            self._open(folder)
        record = _written(task, attempt, text)
        try:
            if os.write(self._handle, record) < len(record):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(self._handle, self._size)
            raise
        self._size += len(record)

    def _open(self, folder: str) -> None:
        self.close()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        while True:
            handle = os.open(f"{folder}/{self._name}", FLAGS, 0o600)
            fcntl.flock(handle, fcntl.LOCK_SH)
            found = os.fstat(handle)
            if found.st_nlink:
                break
            os.close(handle)  # somebody has just taken records out, and put another in its place
        self._handle, self._folder, self._size = handle, folder, found.st_size
        if self._size:
            self._size = index_of(f"{folder}/{self._name}").upto
            os.ftruncate(handle, self._size)  # half a record of one that had our name before us

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle, self._folder = -1, ""


class Record(NamedTuple):
    """Where the text of an output is."""

    pack: str
    start: int
    length: int


class Index(NamedTuple):
    """What is in a pack, as far as it was read: where each text starts, and its length."""

    pack: str
    inode: int
    upto: int
    records: dict[Key, tuple[int, int]]


class Packs:
    """Finds records; remembers what is in the packs of the folder that was last looked into."""

    def __init__(self) -> None:
        self._folder = ""
        self._known: dict[str, Index] = {}

    def find(self, folder: str, task: str, attempt: int) -> Record | None:
        for index in self.of(folder):
            if found := index.records.get((task, attempt)):
                return Record(index.pack, *found)
        return None

    def of(self, folder: str) -> Iterator[Index]:
        """The packs of a folder."""
        if folder != self._folder:
            self._folder, self._known = folder, {}
        names: list[str] = []
        with suppress(OSError):
            names = [name for name in os.listdir(folder) if name.endswith(ENDING)]
        for name in names:
            path = f"{folder}/{name}"
            with suppress(OSError):
                self._known[path] = index_of(path, self._known.get(path))
                yield self._known[path]


def index_of(path: str, known: Index | None = None) -> Index:
    """What is in a pack; of one that was read before, only what came since."""
    found = os.stat(path)
    if known is None or known.inode != found.st_ino or known.upto > found.st_size:
        known = Index(path, found.st_ino, 0, {})
    if known.upto == found.st_size:
        return known
    with open(path, "rb") as file:
        file.seek(known.upto)
        text = file.read()
    at = 0
    while (record := _record(text, at)) is not None:
        key, start, length = record
        known.records[key] = known.upto + start, length
        at = start + length + 1
    return known._replace(upto=known.upto + at)


def _written(task: str, attempt: int, text: bytes) -> bytes:
    return b"%s.%d %d\n%s\n" % (task.encode(), attempt, len(text), text)


def _record(text: bytes, at: int) -> tuple[Key, int, int] | None:
    """The record that begins there: whose it is, where its text starts, how long that is.
    None at the end, and for what its writer could not finish."""
    head, newline, _ = text[at : at + LONGEST_HEAD].partition(b"\n")
    name, _, length = head.partition(b" ")
    task, _, attempt = name.partition(b".")
    if not (newline and attempt.isdigit() and length.isdigit()):
        return None
    start = at + len(head) + 1
    end = start + int(length)
    if text[end : end + 1] != b"\n":
        return None
    return (task.decode("ascii", "replace"), int(attempt)), start, int(length)


def read(record: Record, start: int, most: int) -> bytes:
    """A piece of a record's text."""
    with open(record.pack, "rb") as file:
        file.seek(record.start + start)
        return file.read(max(min(most, record.length - start), 0))


def take_out(path: str, keys: Collection[Key]) -> bool:
    """Remove records. False: their writer may still add others, so it stays as it is."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            index = index_of(path)
            left = [(key, at) for key, at in index.records.items() if key not in keys]
            if left:
                _write_again(path, left)
            else:
                os.unlink(path)
    except OSError:
        return False
    return True


def _write_again(path: str, records: list[tuple[Key, tuple[int, int]]]) -> None:
    """With the same times: what is left has become no younger."""
    times = os.stat(path)
    with open(os.open(path + NEW, FLAGS | os.O_TRUNC, 0o600), "wb") as file:
        for (task, attempt), (start, length) in records:
            file.write(_written(task, attempt, read(Record(path, start, length), 0, length)))
    os.utime(path + NEW, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.rename(path + NEW, path)
