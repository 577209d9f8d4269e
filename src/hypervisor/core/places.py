"""Where a store keeps its other files.

`data` is permanent: outputs, summaries, config.toml, logs. `runtime` is
private, in memory where the system has such a place, and empty after a reboot:
the supervisor's lock, the workers' journals, and the environments that runs
were started with, which may hold secrets and so never reach the disk.

All processes of a user must find the same runtime folder: it depends on the
store's identity, the boot and the pid namespace, and on nothing that a login,
cron or a symlink could change.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress

from hypervisor.core.errors import StoreUnavailable
from hypervisor.core.mounts import read_mounts
from hypervisor.core.records import NamedTuple

DATA = ".hypervisor"
STORE = "HYPERVISOR_STORE"  # the environment variable that names the store …
# … and those that hold secrets of a PostgreSQL store.
STORE_SECRETS = ("PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE", "PGSSLKEY")
IN_MEMORY = ("tmpfs", "ramfs")


class Places(NamedTuple):
    data: str
    runtime: str

    @property
    def locks(self) -> str:
        """The folder of the locks for changes to task files."""
        return os.path.join(self.runtime, "files")


def places_of(where: str, folder: str | None, identity: str, boot: str) -> Places:
    """`where` names the store, without secrets; `folder` is that of its file, if it is one.
    `identity` is the same for all its names; `boot` names this boot and pid namespace."""
    data = folder or os.path.join(_data_home(), "hypervisor", digest(where))
    return Places(data, os.path.join(_runtime_home(), digest(identity, boot)))


def remember_places(path: str, boot: str, places: Places) -> None:
    """Let `known_places` find them again. Only a hint: the path may be another store's by then."""
    hint = _hint(path, boot)
    with suppress(OSError):
        os.symlink(places.runtime, f"{hint}.{os.getpid()}.new")
        os.rename(f"{hint}.{os.getpid()}.new", hint)


def known_places(path: str, boot: str) -> Places:
    """Probably those of the store at `path`, without opening it."""
    return Places(os.path.dirname(path), _hint(path, boot))


def _hint(path: str, boot: str) -> str:
    return os.path.join(_runtime_home(), f"at-{digest(os.path.realpath(path), boot)}")


def digest(*parts: str) -> str:
    try:
        from _blake2 import blake2b  # hashlib would load OpenSSL
    except ImportError:  # a Python that was built without it
        from hashlib import blake2b

    text = "\0".join(parts).encode("utf-8", "surrogateescape")
    return blake2b(text, digest_size=8).hexdigest()


def private_folder(name: str) -> str:
    """A folder for this user's processes on this host, independent of the store."""
    return make_private(os.path.join(_runtime_home(), name))


def supervisor_lock(places: Places) -> str:
    return os.path.join(places.runtime, "supervisor.lock")


def is_supervised(places: Places) -> bool:
    """Whether a supervisor holds its lock. The check takes a shared lock, so that two checks do
    not mistake each other for a supervisor."""
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
    """The folder, created for this user only; refused if other users could access it."""
    for path in (os.path.dirname(folder), folder):
        _make(path)
    return folder


def is_in_memory(folder: str) -> bool:
    """Whether files there never reach a disk, as far as the system shows."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        kinds = (mount.kind for mount in read_mounts() if mount.device == number)
        return next(kinds, "") in IN_MEMORY
    return False


def _make(folder: str) -> None:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.lstat(folder)
    except OSError as error:
        raise StoreUnavailable(f"cannot create {folder}: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise StoreUnavailable(f"{folder} belongs to another user. Nothing was started.")
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.chmod(folder, 0o700)


def _data_home() -> str:
    return os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")


def _runtime_home() -> str:
    """Independent of the environment, which differs between cron, ssh and a terminal."""
    uid = os.getuid()
    bases = ("/dev/shm", f"/run/user/{uid}", "/tmp")
    base = next((base for base in bases if os.access(base, os.W_OK | os.X_OK)), bases[-1])
    return os.path.join(base, f"hypervisor-{uid}")
