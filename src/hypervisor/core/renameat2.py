"""The system call that exchanges two names, or renames without replacing anything."""

from __future__ import annotations

import errno
import os
from functools import cache
from typing import Any

NO_REPLACE, EXCHANGE = 1, 2
HERE = -100  # AT_FDCWD: paths relative to the current folder
UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


def renameat2(old: int, name: str, new: int, target: str, flags: int) -> bool:
    """False if this system or file system has no such call."""
    import ctypes

    call = _call()
    if call is None:
        return False
    if call(old, os.fsencode(name), new, os.fsencode(target), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), name)


@cache
def _call() -> Any:
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        name = (ctypes.c_int, ctypes.c_char_p)
        call.argtypes = (*name, *name, ctypes.c_uint)
    return call
