"""Secrets beside the store: created once, readable by their owner only."""

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
        found = os.fstat(handle)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise StoreUnavailable(
                f"others can read {path}. Nothing was started; remove it, and a new one is made."
            )
        secret = file.read().strip()
    if len(secret) < LENGTH:
        raise StoreUnavailable(f"{path} holds no secret. Remove it, and a new one is made.")
    return path, secret


def _make(path: str) -> None:
    """Written in full under another name first: nobody finds half a secret."""
    from secrets import token_urlsafe

    fresh = f"{path}.{os.getpid()}.new"
    handle = os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(token_urlsafe(LENGTH) + "\n")
    with suppress(FileExistsError):
        os.link(fresh, path)
    os.unlink(fresh)
