"""The kept outputs: `outputs/<group>/<task>.<attempt>.log`, or with others in a pack there.

The group is the beginning of the id, which tasks that were added together share: a folder
for every task would take more room and time than most outputs do. What a short command
printed lies in a pack; a file of its own is preferred where there are both.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress

from hypervisor.core.errors import InvalidInput
from hypervisor.runs.outputs import archive
from hypervisor.runs.spec import Output

PIECE = 1 << 20
LONGEST = 1 << 62
NO_SIGNS = str.maketrans("", "", ".-")
SPOOLS = "spools"  # not a group: no id is so short
GROUP = 10  # characters; the two that are left tell up to 1,024 tasks apart


class Outputs:
    def __init__(self, data: str) -> None:
        self.root = os.path.join(data, "outputs")
        self._packs = archive.Packs()

    def path(self, task: str, attempt: int) -> str:
        return f"{self.folder_of(task)}/{task}.{attempt}.log"

    def folder_of(self, task: str) -> str:
        if not task.isalnum():  # other names could lead elsewhere
            raise InvalidInput(f"{task[:60]!r} is no id.")
        return f"{self.root}/{task[:GROUP]}"

    def prepare(self, task: str, attempt: int) -> str:
        """The path of an output that is about to be written."""
        self.make_folder(self.folder_of(task))
        return self.path(task, attempt)

    def make_folder(self, folder: str) -> None:
        if os.access(folder, os.F_OK):  # a tenth of what it costs to make it in vain
            return
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        with suppress(FileExistsError):  # another worker may be making it
            os.mkdir(folder, 0o700)

    def room(self) -> int:
        """How many bytes more the disk takes from us. A disk that does not say has room."""
        try:
            found = os.statvfs(os.path.dirname(self.root))
        except OSError:
            return LONGEST
        blocks = found.f_bavail if os.geteuid() else found.f_bfree
        return blocks * found.f_frsize if found.f_blocks else LONGEST

    def takes_long(self, task: str, attempt: int) -> None:
        """Somebody may want to see what it prints while it runs."""

    def ended(self, task: str, attempt: int) -> int | None:
        """Nothing of the attempt writes any more: how much there is."""
        return self.size(task, attempt)

    def close(self) -> None:
        """No more will be written."""

    def size(self, task: str, attempt: int) -> int | None:
        """How much there is, None if there is no such output."""
        try:
            return os.stat(self.path(task, attempt)).st_size
        except OSError:
            return self._packs.size(self.folder_of(task), task, attempt)

    def read(self, task: str, attempt: int, start: int, most: int) -> bytes:
        try:
            with open(self.path(task, attempt), "rb") as file:
                file.seek(start)
                return file.read(most)
        except FileNotFoundError:
            return self._packs.read(self.folder_of(task), task, attempt, start, most) or b""

    def as_file(self, task: str, attempt: int) -> str:
        """The path of the whole output, for a program that wants a file."""
        path = self.path(task, attempt)
        if os.path.exists(path):
            return path
        text = self._packs.read(self.folder_of(task), task, attempt, 0, LONGEST)
        if text is not None:
            fresh = f"{path}.{os.getpid()}"
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(text)
            os.rename(fresh, path)
        return path

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

    def remove(self, outputs: Iterable[Output]) -> list[Output]:
        """Delete outputs, and the changes that are kept beside them; returns those that are
        gone. What a worker that still writes has packed is left to another time."""
        groups: dict[str, list[Output]] = {}
        for output in outputs:
            groups.setdefault(self.folder_of(output.task), []).append(output)
        return [o for folder, some in groups.items() for o in self._remove_from(folder, some)]

    def recover(self, worker: str, running: tuple[str, int] | None = None) -> None:
        """Of a worker that is no more: give what its last attempt printed a place."""
        spool = self.spool_of(worker)
        with suppress(OSError):
            if running is not None and os.stat(spool).st_size:
                os.rename(spool, self.prepare(*running))
            else:
                os.unlink(spool)

    def spool_of(self, worker: str) -> str:
        """Where a worker's commands write first."""
        name = worker.rpartition("/")[2]  # its process and what tells it from others' of that id
        if not name.translate(NO_SIGNS).isalnum():
            raise InvalidInput(f"{worker[:60]!r} is no worker's id.")
        return f"{self.root}/{SPOOLS}/{name}"

    def free(self) -> int:
        """Bytes left on the disk."""
        with suppress(OSError):
            return shutil.disk_usage(os.path.dirname(self.root)).free
        return 1 << 62

    def _of_group(self, group: str) -> Iterator[Output]:
        folder = os.path.join(self.root, group)
        files = {(output.task, output.attempt): output for output in self._files_of(folder, group)}
        yield from files.values()
        for index in self._packs.of(folder):
            changed_at = _changed_at(index.pack)
            for (task, attempt), (_, length) in index.records.items():
                ours = task.isalnum() and task[:GROUP] == group
                if ours and (task, attempt) not in files:
                    yield Output(task, attempt, length, changed_at)

    def _files_of(self, folder: str, group: str) -> Iterator[Output]:
        with suppress(OSError), os.scandir(folder) as files:
            for file in files:
                task, _, rest = file.name.partition(".")
                number, ending = os.path.splitext(rest)
                ours = task.isalnum() and task[:GROUP] == group
                if ours and ending == ".log" and number.isdecimal():
                    found = file.stat(follow_symlinks=False)
                    yield Output(task, int(number), found.st_size, int(found.st_mtime * 1000))

    def _remove_from(self, folder: str, outputs: list[Output]) -> list[Output]:
        keys = {(output.task, output.attempt) for output in outputs}
        packed = [index for index in self._packs.of(folder) if not keys.isdisjoint(index.records)]
        in_use = [index.records for index in packed if not archive.take_out(index.pack, keys)]
        gone = [
            output
            for output in outputs
            if _are_unlinked(self.path(output.task, output.attempt))
            and not any((output.task, output.attempt) in records for records in in_use)
        ]
        with suppress(OSError):
            os.rmdir(folder)  # only once it is empty
        return gone


def _are_unlinked(path: str) -> bool:
    """The file of an output, and the changes that are kept beside it."""
    for each in (path.removesuffix(".log") + ".patch", path):
        try:
            os.unlink(each)
        except FileNotFoundError:
            pass
        except OSError:
            return False
    return True


def _changed_at(path: str) -> int:
    with suppress(OSError):
        return int(os.stat(path).st_mtime * 1000)
    return 0
