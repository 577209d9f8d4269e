"""The folder of a batch, `batches/<name>/` next to the store: the files that people read.

All of them can be rebuilt from the store. Files are replaced atomically, so readers never see half
of one.
"""

from __future__ import annotations

import os

from hypervisor.core.private_files import replace_private_file
from hypervisor.core.private_folders import make_private_folders

MAX_NAME_LENGTH = 60


class BatchFiles:
    def __init__(self, data: str) -> None:
        self._root = os.path.join(data, "batches")

    def folder(self, batch: str) -> str:
        """The path of the folder, which may not exist. Different names have different folders."""
        return os.path.join(self._root, safe_name(batch))

    def append(self, batch: str, name: str, text: str) -> None:
        """Append to a file that is not visible before `finish`."""
        path = os.path.join(self._create_folder(batch), f"{name}.{os.getpid()}.new")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "surrogatepass"))

    def finish(self, batch: str, name: str) -> str:
        """Make the file visible; returns its path."""
        path = os.path.join(self.folder(batch), name)
        os.rename(f"{path}.{os.getpid()}.new", path)
        return path

    def write(self, batch: str, name: str, text: str) -> str:
        path = os.path.join(self._create_folder(batch), name)
        replace_private_file(path, text.encode("utf-8", "surrogatepass"))
        return path

    def _create_folder(self, batch: str) -> str:
        folder = self.folder(batch)
        make_private_folders(folder)
        if os.stat(self._root).st_mode & 0o077:  # created by an earlier version
            os.chmod(self._root, 0o700)
        return folder


def safe_name(batch: str) -> str:
    """The batch's name if it is a valid file name, else a name made from it."""
    from hashlib import blake2b

    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in batch)[:MAX_NAME_LENGTH]
    safe = safe.strip(".") or "batch"
    if safe == batch:
        return safe
    return f"{safe}-{blake2b(batch.encode('utf-8', 'surrogatepass'), digest_size=3).hexdigest()}"
