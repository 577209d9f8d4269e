"""Notices a backup that was copied over a store beside the write-ahead log of that store.

SQLite would apply the log to whatever file it finds, so the backup would silently not be restored,
or be mixed with the log. So the lock file notes which log belongs to which file: the inode and the
salt of the log, the inode, time and size of the file. Only a checkpoint changes the file while the
log lives; while one runs, nothing is noted.
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
    """What the lock file says; written by whoever holds the lock."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._salt = b""

    def is_other_log(self, log: int) -> bool:
        """Whether the log was started over, or is new to us. Needs no lock."""
        return os.pread(log, SALT[1], SALT[0]) != self._salt

    def refresh(self, lock: int, log: int) -> None:
        """After a commit to another log: note it."""
        if os.pread(lock, 1, 0) != CHECKPOINT:
            self.write(lock, log)

    def write(self, lock: int, log: int) -> None:
        with suppress(OSError):  # then a restored file is not noticed, and nothing else is worse
            self._salt = os.pread(log, SALT[1], SALT[0])
            note = [_boot(), [os.fstat(log).st_ino, self._salt.hex()], _file(self._path)]
            _replace(lock, json.dumps(note).encode())

    def checkpoint(self, lock: int) -> None:
        with suppress(OSError):
            _replace(lock, CHECKPOINT)

    def forget(self, lock: int) -> None:
        """SQLite removes the log when the last one closes the store."""
        with suppress(OSError):
            if lock >= 0 and not os.path.exists(f"{self._path}-wal"):
                os.ftruncate(lock, 0)


def refuse_foreign_log(path: str) -> None:
    """Before SQLite opens a store: refuse it if its file is not the one its log belongs to."""
    try:
        with open(path + "-wal", "rb") as log, open(path + ".lock", "rb") as lock:
            boot, noted_log, noted_file = json.load(lock)
            found = [os.fstat(log.fileno()).st_ino, os.pread(log.fileno(), SALT[1], SALT[0]).hex()]
            file = _file(path)
            if found != noted_log or file == noted_file:
                return
            # What a power cut leaves of a file's time is no evidence.
            if boot != _boot() and file[0] == noted_file[0]:
                return
            if _was_checkpointed(path, log.fileno()):
                return
    except (OSError, ValueError, TypeError, LookupError, apsw.Error):
        return
    raise StoreUnavailable(
        f"{path} was replaced, but {path}-wal is the log of the file before. Nothing was changed; "
        f"if you restored a backup, remove {path}-wal and {path}-shm, which hold the last changes "
        "of the store before; otherwise put the file before back."
    )


def _was_checkpointed(path: str, log: int) -> bool:
    """Whether anything in the file came from the log: then a checkpoint that nobody noted has
    changed it. Read through SQLite: closing it by hand would drop locks of this process."""
    size = int.from_bytes(os.pread(log, 4, 8), "big")
    salt = os.pread(log, SALT[1], SALT[0])
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    file = apsw.VFSFile("", path, flags)
    try:
        at = HEADER
        while len(frame := os.pread(log, FRAME_HEADER + size, at)) == FRAME_HEADER + size:
            if frame[8:16] != salt:
                break
            page = int.from_bytes(frame[:4], "big")
            offset = (page - 1) * size
            if offset + size <= file.xFileSize() and file.xRead(size, offset) == frame[24:]:
                return True
            at += FRAME_HEADER + size
    finally:
        file.xClose()
    return False


def _replace(lock: int, text: bytes) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, text, 0)


def _file(path: str) -> list[Any]:
    found = os.stat(path)
    return [found.st_ino, found.st_mtime_ns, found.st_size]


def _boot() -> str:
    with suppress(OSError), open(BOOT, encoding="ascii") as file:
        return file.read().strip()
    return ""
