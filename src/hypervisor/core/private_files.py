"""Files that only this user can read."""

from __future__ import annotations

import os
from contextlib import suppress


def replace_private_file(path: str, content: bytes) -> None:
    """Write a file atomically: readers see the old content or the new one."""
    new = f"{path}.{os.getpid()}.new"
    try:
        with open(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        os.rename(new, path)
    except OSError:
        with suppress(OSError):
            os.unlink(new)
        raise
