"""Checking the installation, the store and what this host offers."""

import os
from contextlib import suppress

from hypervisor.core.store_path import FOLDER
from hypervisor.queue.context import Context
from hypervisor.queue.doctor import Check, check_store


def doctor(hv: Context, fix: bool = False) -> tuple[Check, ...]:
    """Check the store, versions, permissions, disk space, receipts, stuck claims and sandboxes.

    `fix` makes the files of a store private again. Counts and claims of dead workers are always
    corrected; everything else needs a decision."""
    if fix:
        _make_private(hv.store.where)
    return (*check_store(hv), *_sandbox(hv))


def _make_private(path: str) -> None:
    """The files of an SQLite store, and its folder if it is ours alone."""
    if not os.path.isfile(path):
        return
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.basename(folder) == FOLDER:
        os.chmod(folder, 0o700)
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(FileNotFoundError):
            os.chmod(name, 0o600)


def _sandbox(hv: Context) -> tuple[Check, ...]:
    """Which levels this host can build. Only a level that config.toml asks for must be among
    them."""
    if not hv.is_equipped:
        return ()
    from hypervisor.core.errors import SandboxUnavailable
    from hypervisor.runs.sandbox.host import host_walls, levels_here, root_note, walls_for

    settings = hv.settings.sandbox
    usable = [f"{level} ({wall})" for level, wall in levels_here(settings).items() if wall]
    parts = [", ".join(usable) or f"none can be built: {host_walls().describe()}", root_note()]
    found = "; ".join(part for part in parts if part)
    try:
        if settings.level != "none":
            walls_for(settings.level, settings)
    except SandboxUnavailable as error:
        return (Check("sandbox", False, found, str(error)),)
    return (Check("sandbox", True, found),)
