"""Where the store is: named, or in the .hypervisor folder of the project, found like .git."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hypervisor.core.errors import InvalidInput, NotFound, StoreUnavailable

FOLDER = ".hypervisor"
FILE = "store.db"


def meant(store: str | None, environment: Mapping[str, str]) -> str:
    """The store that was named: a path or a URL, "" if none was."""
    if store is not None and not store.strip():
        raise InvalidInput("--store is empty: name a path or a postgresql:// URL.")
    return store or environment.get("HYPERVISOR_STORE") or ""


def store_path(where: str, create: bool) -> str:
    """The file of the store that is meant. Links are resolved: SQLite names its log after the
    file, and whoever comes by a link must find the same lock, supervisor and outputs."""
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
    found = find_upwards(here, FOLDER)
    if found is not None and os.stat(found).st_uid not in (os.getuid(), 0):
        raise StoreUnavailable(
            f"{found} belongs to another user, who could read and change all you do. "
            "Nothing was changed; if that is what you want, name it with --store."
        )
    if found is None and not create:
        raise NotFound(f"there is no {FOLDER} folder here or above. `hv add` makes one.")
    return os.path.join(found or os.path.join(_project(here), FOLDER), FILE)


def find_upwards(start: str, name: str) -> str | None:
    """The nearest file or folder of that name, here or above."""
    folder = start
    while not os.path.exists(os.path.join(folder, name)):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return os.path.join(folder, name)


def _project(here: str) -> str:
    """A new store goes to the top of the git checkout, or where we are."""
    git = find_upwards(here, ".git")
    return os.path.dirname(git) if git else here
