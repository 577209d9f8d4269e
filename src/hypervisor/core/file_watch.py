"""Waiting for files to change without looking at them again and again (inotify)."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

MODIFIED, CREATED, MOVED_HERE = 0x2, 0x100, 0x80
BUFFER = 65_536


class FileWatch:
    """Readable after something was written to a file, or to any file directly in a folder."""

    def __init__(self, path: str) -> None:
        """OSError if the system cannot watch it, for example because too much is watched."""
        start, add = _calls()
        self._handle = _checked(start(os.O_NONBLOCK | os.O_CLOEXEC), path)
        try:
            _checked(add(self._handle, os.fsencode(path), MODIFIED | CREATED | MOVED_HERE), path)
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        return self._handle

    def clear(self) -> None:
        """Forget the changes so far."""
        try:
            while len(os.read(self._handle, BUFFER)) > BUFFER // 2:
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        os.close(self._handle)


def _checked(answer: int, path: str) -> int:
    import ctypes

    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return answer


@cache
def _calls() -> tuple[Any, Any]:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    start, add = library.inotify_init1, library.inotify_add_watch
    start.argtypes = (ctypes.c_int,)
    add.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
    return start, add
