"""The kept outputs: one file per attempt, `outputs/<group>/<task>.<attempt>.log`.

The group is the beginning of the id, which tasks that were added together share: a folder
for every task would take more room and time than most outputs do.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress

from hypervisor.domain.errors import InvalidInput
from hypervisor.domain.run import Output

PIECE = 1 << 20
GROUP = 10  # characters; the two that are left tell up to 1,024 tasks apart


class Outputs:
    def __init__(self, data: str) -> None:
        self.root = os.path.join(data, "outputs")

    def path(self, task: str, attempt: int) -> str:
        if not task.isalnum():  # other names could lead elsewhere
            raise InvalidInput(f"{task[:60]!r} is no id.")
        return f"{self.root}/{task[:GROUP]}/{task}.{attempt}.log"

    def prepare(self, task: str, attempt: int) -> str:
        """The path of an output that is about to be written."""
        path = self.path(task, attempt)
        folder = path[: path.rindex("/")]
        if os.access(folder, os.F_OK):  # a tenth of what it costs to make it in vain
            return path
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        with suppress(FileExistsError):  # another worker may be making it
            os.mkdir(folder, 0o700)
        return path

    def size(self, task: str, attempt: int) -> int | None:
        """How much there is, None if there is no such output."""
        try:
            return os.stat(self.path(task, attempt)).st_size
        except OSError:
            return None

    def read(self, task: str, attempt: int, start: int, most: int) -> bytes:
        try:
            with open(self.path(task, attempt), "rb") as file:
                file.seek(start)
                return file.read(most)
        except FileNotFoundError:
            return b""

    def last_line(self, task: str, attempt: int) -> str:
        """The last non-empty line so far, for people to see that something happens."""
        size = self.size(task, attempt) or 0
        text = self.read(task, attempt, max(size - 2000, 0), 2000).decode("utf-8", "replace")
        lines = [line.strip() for line in text.replace("\r", "\n").split("\n")]
        return next((line for line in reversed(lines) if line), "")

    def bound(self, task: str, attempt: int, keep: int) -> None:
        """Keep head and tail of an output that is too long, and say what was left out."""
        path = self.path(task, attempt)
        try:
            size = os.stat(path).st_size
        except OSError:
            return
        if size <= keep + PIECE:
            return
        half = keep // 2
        left_out = size - 2 * half
        note = f"\n… {left_out} bytes left out here by Hypervisor …\n".encode()
        with open(path, "r+b") as file:
            file.seek(size - half)
            tail = file.read(half)
            file.seek(half)
            file.write(note + tail)
            file.truncate()

    def all(self) -> Iterator[Output]:
        """Every kept output, as the file system lists them."""
        with suppress(FileNotFoundError), os.scandir(self.root) as groups:
            for group in groups:
                if group.is_dir(follow_symlinks=False):
                    yield from self._of_group(group.name)

    def remove(self, task: str, attempt: int) -> int:
        """Delete an output, and the changes that are kept beside it; returns how many bytes
        the output had."""
        size, path = self.size(task, attempt) or 0, self.path(task, attempt)
        with suppress(OSError):
            os.unlink(path.removesuffix(".log") + ".patch")
        with suppress(OSError):
            os.unlink(path)
            os.rmdir(os.path.dirname(path))  # only once it is empty
        return size

    def free(self) -> int:
        """Bytes left on the disk."""
        with suppress(OSError):
            return shutil.disk_usage(os.path.dirname(self.root)).free
        return 1 << 62

    def _of_group(self, group: str) -> Iterator[Output]:
        with suppress(OSError), os.scandir(os.path.join(self.root, group)) as files:
            for file in files:
                task, _, rest = file.name.partition(".")
                number, ending = os.path.splitext(rest)
                ours = task.isalnum() and task[:GROUP] == group
                if ours and ending == ".log" and number.isdecimal():
                    found = file.stat(follow_symlinks=False)
                    yield Output(task, int(number), found.st_size, int(found.st_mtime * 1000))
