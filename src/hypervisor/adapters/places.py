"""Where a store keeps things beside its database.

`data` holds what is kept: outputs, summaries, config.toml, logs. `runtime` is
private, in memory where the system has such a place, and empty after a reboot:
the supervisor's lock, what each worker is doing, and the environments that
runs were started with, which may hold secrets and so never reach the disk.
"""

from __future__ import annotations

import fcntl
import os
import stat
from typing import NamedTuple

from hypervisor.domain.errors import StoreUnavailable


class Places(NamedTuple):
    data: str
    runtime: str


def places_of(where: str, folder: str | None) -> Places:
    """`where` names the store, without secrets; `folder` is where its file lives, if it is one."""
    from hashlib import blake2b

    mark = blake2b(where.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    data = folder or os.path.join(_data_home(), "hypervisor", mark)
    return Places(data, os.path.join(_runtime_home(), mark))


def supervisor_lock(places: Places) -> str:
    return os.path.join(places.runtime, "supervisor.lock")


def is_supervised(places: Places) -> bool:
    """Whether a supervisor holds its lock. Whoever looks shares it for a moment, so that two of
    them do not take each other for a supervisor."""
    try:
        with open(supervisor_lock(places), "rb") as file:
            return not take_lock(file.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def take_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def make_private(folder: str) -> str:
    """The folder, made for us alone; refused if somebody else could reach into it."""
    for each in (os.path.dirname(folder), folder):
        _make(each)
    return folder


def _make(folder: str) -> None:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be made ({error.strerror}).") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StoreUnavailable(f"{folder} belongs to somebody else; nothing was started.")
    if stat.S_IMODE(found.st_mode) & 0o077:
        os.chmod(folder, 0o700)


def _data_home() -> str:
    return os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")


def _runtime_home() -> str:
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and os.path.isdir(given) and os.stat(given).st_uid == os.getuid():
        return os.path.join(given, "hypervisor")
    base = "/dev/shm"  # made private below, the owner is checked
    if not os.access(base, os.W_OK):
        import tempfile  # takes its time to load

        base = tempfile.gettempdir()
    return os.path.join(base, f"hypervisor-{os.getuid()}")
