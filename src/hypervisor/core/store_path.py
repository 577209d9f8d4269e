"""Where the store is: as named, or in the project's .hypervisor folder, found like .git."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hypervisor.core.errors import InvalidInput, NotFound, StoreUnavailable

FOLDER = ".hypervisor"
FILE = "store.db"


def named_store(store: str | None, environment: Mapping[str, str]) -> str:
    """The store named by option or environment: a path or a URL, "" if none."""
    if store is not None and not store.strip():
        raise InvalidInput("--store is empty: name a path or a postgresql:// URL.")
    return store or environment.get("HYPERVISOR_STORE") or ""


def store_path(where: str, create: bool) -> str:
    """The path of the store's file. Links are resolved: SQLite names its log after the file, and
    access through a link must find the same lock, supervisor and outputs."""
    try:
        where.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            "the store's path is not valid UTF-8; choose another with --store."
        ) from None
    path = _find(where, create)
    return os.path.realpath(path) if os.path.islink(path) else path


def _find(where: str, create: bool) -> str:
    if where:
        path = os.path.abspath(os.path.expanduser(where))
        return path if path.endswith(".db") or os.path.isfile(path) else os.path.join(path, FILE)
    try:
        here = os.getcwd()
    except OSError:
        raise NotFound(
            "the current folder no longer exists. `cd` elsewhere or use --store."
        ) from None
    data = find_upwards(here, FOLDER)
    if data is not None and os.stat(data).st_uid not in (os.getuid(), 0):
        raise StoreUnavailable(
            f"{data} belongs to another user, who could read and change your tasks. Nothing was "
            f"changed; to use it anyway, name it with --store."
        )
    if data is None and not create:
        raise NotFound(
            f"no {FOLDER} folder here or in any parent folder. Create one with `hv add` or `hv "
            f"run`."
        )
    return os.path.join(data or os.path.join(_project(here), FOLDER), FILE)


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
    """The top of the git checkout, or the current folder: where a new store is created."""
    git = find_upwards(here, ".git")
    return os.path.dirname(git) if git else here
