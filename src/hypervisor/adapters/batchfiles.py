"""The folder of a batch, `batches/<name>/` beside the store: what people read of it.

Everything in it can be made anew from the store. A file is replaced at one
stroke, so that nobody ever reads half of one.
"""

from __future__ import annotations

import os

LONGEST_NAME = 60


class BatchFiles:
    def __init__(self, data: str) -> None:
        self._root = os.path.join(data, "batches")

    def folder(self, batch: str) -> str:
        """Its path; nothing is made. Names that differ have folders that differ."""
        return os.path.join(self._root, safe_name(batch))

    def append(self, batch: str, name: str, text: str) -> None:
        """Add to a file that nobody sees before it is finished."""
        folder = self.folder(batch)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, f"{name}.{os.getpid()}.new")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "surrogatepass"))

    def finish(self, batch: str, name: str) -> str:
        """Let the file be seen; returns its path."""
        path = os.path.join(self.folder(batch), name)
        os.rename(f"{path}.{os.getpid()}.new", path)
        return path

    def write(self, batch: str, name: str, text: str) -> str:
        folder = self.folder(batch)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, name)
        data = text.encode("utf-8", "surrogatepass")
        handle = os.open(f"{path}.{os.getpid()}.new", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.rename(f"{path}.{os.getpid()}.new", path)
        return path


def safe_name(batch: str) -> str:
    """The batch's name where that can be a file name, else one made from it."""
    from hashlib import blake2b

    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in batch)[:LONGEST_NAME]
    safe = safe.strip(".") or "batch"
    if safe == batch:
        return safe
    return f"{safe}-{blake2b(batch.encode('utf-8', 'surrogatepass'), digest_size=3).hexdigest()}"
