"""The file that an item names, and whether it has changed since an attempt left it.

Size and time are compared first. Only if the time differs is the content read, and only of files
whose digest was recorded: a larger file that was merely touched counts as changed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.inputs.item_names import text_in_data
from hypervisor.queue.task import Json

MAX_DIGESTED_SIZE = 1 << 20  # bytes; reading more would slow down every attempt
UNKNOWN = -1  # the size for tasks that were done before files were recorded
MAILBOX = "mailbox"  # a column of mails, which are recognized by their headers


class FileState(NamedTuple):
    """The state of a file. The digest is empty if the file was too large to read."""

    size: int
    mtime: int  # nanoseconds
    digest: str = ""


def path_of_item(data: Json, cwd: str) -> str | None:
    """The path that the item of a task may name; None for an item that is not a path."""
    columns = data.get("columns") if isinstance(data, dict) else None
    if isinstance(columns, dict) and MAILBOX in columns:
        return None
    text = text_in_data(data)
    return None if text is None else os.path.join(cwd, text)


def file_state(path: str) -> FileState | None:
    """The state of a regular file, links followed; None for anything else."""
    status = _status(path)
    if status is None:
        return None
    state = FileState(status.st_size, status.st_mtime_ns)
    if state.size > MAX_DIGESTED_SIZE:
        return state
    return state._replace(digest=_digest(path, state.size))


def is_changed(path: str, recorded: Sequence[FileState], done_at: int) -> bool:
    """Whether a file is in none of these states; without any, whether it was changed after
    `done_at`, in milliseconds. False for a missing file, or one that is not a regular file."""
    status = _status(path)
    if status is None or any(state.size == UNKNOWN for state in recorded):
        return False
    if not recorded:
        return max(status.st_mtime_ns, status.st_ctime_ns) // 1_000_000 > done_at
    if any((status.st_size, status.st_mtime_ns) == state[:2] for state in recorded):
        return False
    digests = {state.digest for state in recorded if state.digest and state.size == status.st_size}
    return not digests or _digest(path, status.st_size) not in digests


def _status(path: str) -> os.stat_result | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # missing, too long for a name, or with a NUL in it
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _digest(path: str, size: int) -> str:
    """The digest of a file of this size; empty if it cannot be read."""
    from hashlib import blake2b

    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return blake2b(os.read(file, size + 1), digest_size=16).hexdigest()
        finally:
            os.close(file)
    except OSError:
        return ""
