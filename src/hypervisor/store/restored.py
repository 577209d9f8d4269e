"""Detects a backup that was copied over a store whose write-ahead log is still there.

SQLite would apply the log to whatever file it finds, and so silently undo the restore or mix the
two. Therefore the lock file records which log belongs to which file: the inode and the salt of the
log; the inode, time and size of the file. While the log exists, only a checkpoint changes the file;
during a checkpoint, nothing is recorded.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

import apsw

from hypervisor.core.errors import StoreUnavailable

SALT = 16, 8  # offset and length in the log's header
HEADER, FRAME_HEADER = 32, 24
BOOT = "/proc/sys/kernel/random/boot_id"
CHECKPOINT = b"-"


class Notes:
    """The content of the lock file; written while holding the lock."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._salt = b""

    def is_other_log(self, log: int) -> bool:
        """Whether the log was restarted, or is new to us. Needs no lock."""
        return os.pread(log, SALT[1], SALT[0]) != self._salt

    def refresh(self, lock: int, log: int) -> None:
        """Record the log after a commit, unless a checkpoint is running."""
        if os.pread(lock, 1, 0) != CHECKPOINT:
            self.write(lock, log)

    def write(self, lock: int, log: int) -> None:
        with suppress(OSError):  # the worst case: a restored file is not noticed
            self._salt = os.pread(log, SALT[1], SALT[0])
            note = [_boot(), [os.fstat(log).st_ino, self._salt.hex()], _file(self._path)]
            _replace(lock, json.dumps(note).encode())

    def checkpoint(self, lock: int) -> None:
        with suppress(OSError):
            _replace(lock, CHECKPOINT)

    def forget(self, lock: int) -> None:
        """SQLite removes the log when the last process closes the store."""
        with suppress(OSError):
            if lock >= 0 and not os.path.exists(f"{self._path}-wal"):
                os.ftruncate(lock, 0)


def refuse_foreign_log(path: str) -> None:
    """Before SQLite opens a store: refuse it if its file is not the one its log belongs to."""
    try:
        with open(path + "-wal", "rb") as log, open(path + ".lock", "rb") as lock:
            boot, noted_log, noted_file = json.load(lock)
            current = [
                os.fstat(log.fileno()).st_ino,
                os.pread(log.fileno(), SALT[1], SALT[0]).hex(),
            ]
            file = _file(path)
            if current != noted_log or file == noted_file:
                return
            # After a power cut, the file's time proves nothing.
            if boot != _boot() and file[0] == noted_file[0]:
                return
            if _was_checkpointed(path, log.fileno()):
                return
    except (OSError, ValueError, TypeError, LookupError, apsw.Error):
        return
    raise StoreUnavailable(
        f"{path} was replaced, but {path}-wal belongs to the previous file. Nothing was "
        f"changed; if you restored a backup, remove {path}-wal and {path}-shm, which hold the "
        f"last changes of the previous store; otherwise restore the previous file."
    )


def _was_checkpointed(path: str, log: int) -> bool:
    """Whether anything in the file came from the log: then an unrecorded checkpoint has changed
    it. Reads through SQLite: closing the file ourselves would drop locks of this process."""
    size = int.from_bytes(os.pread(log, 4, 8), "big")
    salt = os.pread(log, SALT[1], SALT[0])
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    file = apsw.VFSFile("", path, flags)
    try:
        position = HEADER
        while len(frame := os.pread(log, FRAME_HEADER + size, position)) == FRAME_HEADER + size:
            if frame[8:16] != salt:
                break
            page = int.from_bytes(frame[:4], "big")
            offset = (page - 1) * size
            if offset + size <= file.xFileSize() and file.xRead(size, offset) == frame[24:]:
                return True
            position += FRAME_HEADER + size
    finally:
        file.xClose()
    return False


def _replace(lock: int, text: bytes) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, text, 0)


def _file(path: str) -> list[Any]:
    status = os.stat(path)
    return [status.st_ino, status.st_mtime_ns, status.st_size]


def _boot() -> str:
    with suppress(OSError), open(BOOT, encoding="ascii") as file:
        return file.read().strip()
    return ""
