"""Secret files next to the store: created once, readable by their owner only."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from hypervisor.core.errors import StoreUnavailable

LENGTH = 32  # random bytes


def load_or_create_secret(folder: str, name: str) -> tuple[str, str]:
    """The path of the file and its content. Two processes that create it at once get the same."""
    path = os.path.join(folder, name)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if not os.path.exists(path):
        _make(path)
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, encoding="ascii", errors="replace") as file:
        status = os.fstat(handle)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise StoreUnavailable(
                f"other users can read {path}. Nothing was started; delete the file to get a "
                f"new one."
            )
        secret = file.read().strip()
    if len(secret) < LENGTH:
        raise StoreUnavailable(f"{path} contains no secret. Delete the file to get a new one.")
    return path, secret


def _make(path: str) -> None:
    """Write it under a temporary name first, so that no process reads half a secret."""
    from secrets import token_urlsafe

    temporary = f"{path}.{os.getpid()}.new"
    handle = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(token_urlsafe(LENGTH) + "\n")
    with suppress(FileExistsError):
        os.link(temporary, path)
    os.unlink(temporary)
