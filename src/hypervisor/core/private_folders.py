"""Folders that only their owner can access, whatever the umask."""

from __future__ import annotations

import os
from contextlib import suppress


def make_private_folders(folder: str) -> None:
    """Make a folder and its missing parents; `os.makedirs` applies the mode only to the last."""
    above = os.path.dirname(folder)
    if above != folder and not os.path.isdir(above):
        make_private_folders(above)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
