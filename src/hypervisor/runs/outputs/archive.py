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
from typing import IO, NamedTuple

ENDING = ".pack"
NEW = ".new"
LONGEST_HEAD = 100
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
        """Add a record, wholly or not at all. OSError: it could not be added."""
        if folder != self._folder or not os.fstat(self._handle).st_nlink:
            self._open(folder)
        record = _written(task, attempt, text)
        try:
            if os.write(self._handle, record) < len(record):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            self.close()  # if that failed too, the next one cuts it before it adds anything
            raise
        self._size += len(record)

    def _open(self, folder: str) -> None:
        self.close()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path, found = f"{folder}/{self._name}", 0
        while not found:
            self._handle = os.open(path, FLAGS, 0o600)
            try:
                fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                found = os.fstat(self._handle).st_nlink
                self._size = index_of(path).upto if found else 0
                os.ftruncate(self._handle, self._size)  # half a record of an earlier writer
            except OSError:  # also while somebody takes records out, however long that takes
                self.close()
                raise
            if not found:  # somebody has just put another in its place
                self.close()
        self._folder = folder

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle, self._folder = -1, ""


class Index(NamedTuple):
    """What is in a pack, as far as it was read: where each record starts, and how long its text
    is. By the last bytes a pack is known that has become another one."""

    pack: str
    inode: int
    upto: int
    last: bytes
    records: dict[Key, tuple[int, int]]


class Packs:
    """Finds records; remembers what is in the packs of the folder that was last looked into."""

    def __init__(self) -> None:
        self._folder = ""
        self._known: dict[str, Index] = {}

    def size(self, folder: str, task: str, attempt: int) -> int | None:
        found = (index.records.get((task, attempt)) for index in self.of(folder))
        return next((record[1] for record in found if record is not None), None)

    def read(self, folder: str, task: str, attempt: int, start: int, most: int) -> bytes | None:
        """A piece of an output; None if it is not there. If somebody has taken records out since
        it was found, it is looked for once more."""
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
    """What is in a pack; of one that was read before, only what came since."""
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if known is None or known.inode != found.st_ino or not _goes_on(file, known):
            known = Index(path, found.st_ino, 0, b"", {})
        if known.upto == found.st_size:
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


def _goes_on(file: IO[bytes], known: Index) -> bool:
    file.seek(known.upto - len(known.last))
    return file.read(len(known.last)) == known.last


def text_of(index: Index, key: Key) -> bytes | None:
    """The text of a record that was found there; None if it is there no more."""
    at, length = index.records[key]
    head = _head(*key, length)
    with open(index.pack, "rb") as file:
        file.seek(at)
        if file.read(len(head)) != head:
            return None
        text = file.read(length)
    return text if len(text) == length else None


def _written(task: str, attempt: int, text: bytes) -> bytes:
    return _head(task, attempt, len(text)) + text + b"\n"


def _head(task: str, attempt: int, length: int) -> bytes:
    return b"%s.%d %d\n" % (task.encode(), attempt, length)


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


def take_out(path: str, keys: Collection[Key]) -> bool:
    """Remove records. False: their writer may still add others, so it stays as it is."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(file.fileno()).st_nlink:
                return False  # somebody else has just done so
            index = index_of(path)
            left = [key for key in index.records if key not in keys]
            if left:
                _write_again(index, left)
            else:
                os.unlink(path)
    except OSError:
        return False
    return True


def _write_again(index: Index, keys: list[Key]) -> None:
    """With the same times: what is left has become no younger."""
    fresh, times = index.pack + NEW, os.stat(index.pack)
    with open(os.open(fresh, FLAGS | os.O_TRUNC, 0o600), "wb") as file:
        for key in keys:
            file.write(_written(*key, text_of(index, key) or b""))
    os.utime(fresh, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.rename(fresh, index.pack)
