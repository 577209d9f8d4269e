"""Makes the folder and the file of a new SQLite store, private and safe from a power cut."""

from __future__ import annotations

import os
from contextlib import suppress

from hypervisor.core.errors import StoreUnavailable
from hypervisor.core.store_path import FOLDER


def make_store_folder(folder: str) -> None:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _sync_folder(os.path.dirname(folder))
        if os.path.basename(folder) == FOLDER:
            from hypervisor.core import gitignore

            os.chmod(folder, 0o700)  # git may have created it, for the skills in it
            with suppress(FileExistsError), open(os.path.join(folder, gitignore.FILE), "x") as file:
                file.write(gitignore.SKILLS_ONLY)
    except OSError as error:
        raise StoreUnavailable(
            f"{folder} cannot be created ({error.strerror}). Nothing was changed; choose "
            f"another path with --store."
        ) from None


def _sync_folder(folder: str) -> None:
    """The new folder must survive a power cut."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_empty_store(path: str) -> None:
    """Create an empty, private file; SQLite gives the files next to it the same mode."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
