"""Where a store is on disk: as named, or `.hypervisor/` found upwards from here, like `.git`."""

from __future__ import annotations

import os
from contextlib import suppress

from hypervisor.core.errors import InvalidInput, NotFound, StoreUnavailable

FOLDER = ".hypervisor"
FILE = "store.db"


def store_path(where: str, create: bool) -> str:
    """Under its own name: SQLite names its log after that, and whoever comes by a link must find
    the same lock, supervisor and outputs as everybody else."""
    try:
        where.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the store's path is not UTF-8: name another with --store.") from None
    path = _named(where, create)
    return os.path.realpath(path) if os.path.islink(path) else path


def _named(where: str, create: bool) -> str:
    if where:
        path = os.path.abspath(os.path.expanduser(where))
        return path if path.endswith(".db") or os.path.isfile(path) else os.path.join(path, FILE)
    try:
        here = os.getcwd()
    except OSError:
        raise NotFound("the current folder is gone. `cd` elsewhere or use --store.") from None
    folder = _upwards(here, FOLDER)
    if folder is not None and os.stat(folder).st_uid not in (os.getuid(), 0):
        raise StoreUnavailable(
            f"{folder} belongs to another user, who could read and change all you do. "
            "Nothing was changed; if that is what you want, name it with --store."
        )
    if folder is None and not create:
        raise NotFound(f"there is no {FOLDER} folder here or above. `hv add` makes one.")
    return os.path.join(folder or os.path.join(_project(here), FOLDER), FILE)


def _upwards(start: str, name: str) -> str | None:
    folder = start
    while not os.path.exists(os.path.join(folder, name)):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return os.path.join(folder, name)


def _project(here: str) -> str:
    """A new store goes to the top of the git checkout, or where we are."""
    git = _upwards(here, ".git")
    return os.path.dirname(git) if git else here


def make_store_folder(folder: str) -> None:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _sync_folder(os.path.dirname(folder))
        if os.path.basename(folder) == FOLDER:
            from hypervisor.core import gitignore

            os.chmod(folder, 0o700)  # git may have made it, for the skills in it
            with suppress(FileExistsError), open(os.path.join(folder, gitignore.FILE), "x") as file:
                file.write(gitignore.SKILLS_ONLY)
    except OSError as error:
        raise StoreUnavailable(
            f"{folder} cannot be made ({error.strerror}). Nothing was changed; "
            "choose another place with --store."
        ) from None


def _sync_folder(folder: str) -> None:
    """A power cut must not take the new folder back."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_empty_store(path: str) -> None:
    """An empty file is a store to be; SQLite gives the files beside it the same mode."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
