"""Removes an attempt's secrets from the files that its agent left behind.

A secret is overwritten, byte for byte: sessions and databases stay readable, so a later attempt can
resume them. A file that cannot be rewritten is removed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import BinaryIO

from hypervisor.agents.homes import Home
from hypervisor.agents.mcp_config import write_own
from hypervisor.agents.transcript_writer import forms_of

PIECE = 1 << 20
MAX_SIZE = 64 << 20  # bytes; a larger file is removed


def scrub(home: Home, secrets: Collection[str], login: Iterable[str] = ()) -> None:
    """Scrub a home whose agent has ended. `login` are the program's login files below the home,
    which a later attempt needs."""
    forms = sorted({form.encode() for secret in secrets for form in forms_of(secret)}, key=len)
    spared = {os.path.join(home.home, name) for name in login}
    if not forms:
        return
    for path in _files(home.home, home.tmp):
        if path not in spared:
            _scrub_file(path, forms[::-1])  # longest first: one may contain another


def _files(*folders: str) -> Iterator[str]:
    """Regular files only: the target of a link does not belong to the agent."""
    for top in folders:
        for folder, inner, names in os.walk(top):
            for path in (os.path.join(folder, name) for name in inner):
                if not os.path.islink(path):
                    with suppress(OSError):
                        os.chmod(path, 0o700)  # the agent may have removed our permissions
            for path in (os.path.join(folder, name) for name in names):
                if stat.S_ISREG(os.lstat(path).st_mode):
                    yield path


def _scrub_file(path: str, forms: list[bytes]) -> None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            if not _holds(file, forms):
                return
            if os.fstat(file.fileno()).st_size > MAX_SIZE:
                raise OSError("too large")
            file.seek(0)
            content = file.read()
        for form in forms:
            content = content.replace(form, b"*" * len(form))
        write_own(path, content.decode("utf-8", "surrogateescape"))
    except OSError:
        with suppress(OSError):
            os.unlink(path)


def _holds(file: BinaryIO, forms: list[bytes]) -> bool:
    end = b""
    while piece := file.read(PIECE):
        piece = end + piece
        if any(form in piece for form in forms):
            return True
        end = piece[-len(forms[0]) :]
    return False
