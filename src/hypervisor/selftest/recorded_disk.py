"""A disk that can lose power: what SQLite wrote and synced is recorded, then played back.

`record` is for the processes that work on a store: a file system layer under
SQLite notes every write, truncation, sync and deletion, and `os.fdatasync` is
noted as well, all in one ordered log that several processes share. A process
adds which of its changes were acknowledged.

`Disk` plays the log back up to a cut. What had been synced is there; of the
rest, anything may be there: nothing, all, a part, in any order, torn
between sectors. That a file was made or deleted is sure once its folder was synced, which
SQLite does with the first sync of a log or journal that it opened.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import apsw

SECTOR = 512
LOGS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL


class Recorder:
    """The shared log. A process that changes a file holds it until the change is recorded."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._depth = 0

    def __enter__(self) -> Recorder:
        if not self._depth:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self._depth += 1
        return self

    def __exit__(self, *_: Any) -> None:
        self._depth -= 1
        if not self._depth:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def note(self, *entry: Any) -> None:
        with self:
            os.write(self._file, pickle.dumps(entry))


class Notes(Protocol):
    """What takes down the changes: a log, or a disk in memory."""

    def __enter__(self) -> object: ...
    def __exit__(self, *_: Any) -> None: ...
    def note(self, *entry: Any) -> None: ...


def record(path: str) -> Recorder:
    """Note what this process does to files from now on."""
    recorder = Recorder(path)
    put_under_sqlite(recorder)
    return recorder


def put_under_sqlite(notes: Notes) -> None:
    """Pass on every change of files by this process. Nothing is really synced, because that is not
    needed."""
    _Layer.kept = _Layer(notes)

    def note_sync(fd: Any) -> None:
        notes.note("sync", os.fstat(fd).st_ino)

    write = os.pwrite

    def note_write(fd: int, data: Any, offset: int) -> int:
        with notes:
            written = write(fd, data, offset)
            notes.note("write", os.fstat(fd).st_ino, offset, bytes(data[:written]))
        return written

    os.fdatasync, os.pwrite = note_sync, note_write


class _Layer(apsw.VFS):
    """Passes everything through to the file system, noting what changes it."""

    kept: _Layer

    def __init__(self, recorder: Notes) -> None:
        self._recorder = recorder
        super().__init__("recording", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        with self._recorder:
            return _File(self._recorder, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        with self._recorder:
            super().xDelete(filename, syncdir)
            self._recorder.note("unlink", os.path.basename(filename))
            if syncdir:
                self._recorder.note("sync folder", None)


class _File(apsw.VFSFile):
    def __init__(self, recorder: Notes, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._recorder = recorder
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._inode = os.stat(path).st_ino
        self._folder_too = flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & LOGS
        recorder.note("open", self._inode, os.path.basename(path))

    def xWrite(self, data: bytes, offset: int) -> None:
        with self._recorder:
            super().xWrite(data, offset)
            self._recorder.note("write", self._inode, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:
        with self._recorder:
            super().xTruncate(newsize)
            self._recorder.note("truncate", self._inode, newsize)

    def xSync(self, flags: int) -> None:
        with self._recorder:
            try:
                self._recorder.note("sync", self._inode)
            except OSError as error:
                problem = apsw.IOError(str(error))
                problem.extendedresult = apsw.SQLITE_IOERR_FSYNC  # type: ignore[attr-defined]
                raise problem from None
            if self._folder_too:
                self._recorder.note("sync folder", None)
                self._folder_too = False


def read_log(path: Path) -> list[tuple[Any, ...]]:
    with path.open("rb") as file:
        return list(_entries(file))


def _entries(file: Any) -> Iterator[tuple[Any, ...]]:
    while True:
        try:
            yield pickle.load(file)
        except EOFError:
            return


class _Content:
    """A file: what is on the disk, and what has not been synced yet."""

    def __init__(self) -> None:
        self.synced = bytearray()
        self.pending: list[tuple[Any, ...]] = []
        self.named = False

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.synced, change)
        self.pending.clear()


class Disk:
    def __init__(self) -> None:
        self.acknowledged: list[Any] = []
        self._files: dict[int, _Content] = {}
        self._names: dict[str, int] = {}
        self._deleted: dict[str, _Content] = {}

    def load(self, name: str, inode: int, data: bytes) -> None:
        """A file that is on the disk already."""
        content = _Content()
        content.synced, content.named = bytearray(data), True
        self._files[inode] = content
        self._names[name] = inode

    def drop_unsynced(self, inode: int) -> None:
        """A sync failed: the kernel forgets what it could not write, and reports that once."""
        self._files[inode].pending.clear()

    def play(self, entry: tuple[Any, ...]) -> None:
        kind, what, *rest = entry
        if kind == "ack":
            self.acknowledged.append(what)
        elif kind == "open":
            self._files.setdefault(what, _Content())
            self._names[rest[0]] = what
        elif kind == "sync":
            self._files[what].sync()
        elif kind == "sync folder":
            self._deleted.clear()
            for inode in self._names.values():
                self._files[inode].named = True
        elif kind == "unlink":
            self._deleted[what] = self._files.pop(self._names.pop(what))
        elif what in self._files:  # other files, such as locks, are not followed
            self._files[what].pending.append((kind, *rest))

    def everything(self) -> dict[str, bytes]:
        """The files as they are while the power is on."""
        return {name: _whole(self._files[inode]) for name, inode in self._names.items()}

    def cut(self, dice: random.Random) -> dict[str, bytes]:
        """The files as they may be found after the power was cut now."""
        kept = dice.choice([_nothing, _all, _some, _first, _last, _torn])
        found = {}
        for name in {*self._names, *self._deleted}:
            content = self._files.get(self._names.get(name, -1))
            if content is None or (not content.named and dice.random() < 0.5):
                content = self._deleted.get(name) if dice.random() < 0.5 else None
            if content is not None:
                data = bytearray(content.synced)
                for change in kept(content.pending, dice):
                    _apply(data, change)
                found[name] = bytes(data)
        return found


def _whole(content: _Content) -> bytes:
    data = bytearray(content.synced)
    for change in content.pending:
        _apply(data, change)
    return bytes(data)


def _apply(data: bytearray, change: tuple[Any, ...]) -> None:
    kind, at, *rest = change
    if kind == "truncate":
        data.extend(bytes(max(at - len(data), 0)))
        del data[at:]
    else:
        data.extend(bytes(max(at - len(data), 0)))
        data[at : at + len(rest[0])] = rest[0]


Changes = list[tuple[Any, ...]]


def _nothing(pending: Changes, dice: random.Random) -> Changes:
    return []


def _all(pending: Changes, dice: random.Random) -> Changes:
    return pending


def _some(pending: Changes, dice: random.Random) -> Changes:
    return [change for change in pending if dice.random() < 0.5]


def _first(pending: Changes, dice: random.Random) -> Changes:
    return pending[: dice.randint(0, len(pending))]


def _last(pending: Changes, dice: random.Random) -> Changes:
    return pending[dice.randint(0, len(pending)) :]


def _torn(pending: Changes, dice: random.Random) -> Changes:
    """Of each write, only some sectors arrived."""
    pieces: Changes = []
    for change in pending:
        if change[0] == "truncate":
            pieces += [change] * dice.randint(0, 1)
            continue
        _, at, data = change
        start = at
        while start < at + len(data):
            end = min((start // SECTOR + 1) * SECTOR, at + len(data))
            if dice.random() < 0.7:
                pieces.append(("write", start, data[start - at : end - at]))
            start = end
    return pieces
