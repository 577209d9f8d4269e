"""The stored outputs: `outputs/<group>/<task>.<attempt>.log`, or a record in a pack there.

The group is the beginning of the id, which tasks that were added together share: a folder for every
task would cost more than most outputs. Short outputs are in packs. If an output has both a file and
a record, the file counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput
from hypervisor.runs.outputs import archive

if TYPE_CHECKING:
    from hypervisor.runs.spec import Output

if TYPE_CHECKING:
    from hypervisor.runs.outputs.shared import Missing, SharedOutputs

PIECE = 1 << 20
MAX_LENGTH = 1 << 62
NO_SIGNS = str.maketrans("", "", ".-")
SPOOLS = "spools"  # cannot be a group: ids are longer
GROUP = 10  # characters of the id; the remaining two allow 1,024 tasks per group


class Outputs:
    def __init__(self, data: str, shared: SharedOutputs | None = None) -> None:
        """`shared`: where hosts share a store, the outputs of the others."""
        self.root, self.shared = os.path.join(data, "outputs"), shared
        self._packs = archive.Packs()

    def path(self, task: str, attempt: int) -> str:
        return f"{self.folder_of(task)}/{task}.{attempt}.log"

    def folder_of(self, task: str) -> str:
        if not task.isalnum():  # other names could lead elsewhere
            raise InvalidInput(f"invalid id {task[:60]!r}")
        return f"{self.root}/{task[:GROUP]}"

    def setup_path(self, task: str, attempt: int) -> str:
        """What setting up the workspace of an attempt prints."""
        return self.path(task, attempt).removesuffix(".log") + ".setup"

    def tools_path(self, task: str, attempt: int) -> str:
        """When an agent called its tools; its folder is made."""
        return self.prepare(task, attempt).removesuffix(".log") + ".tools"

    def prepare(self, task: str, attempt: int) -> str:
        """The path of an output that is about to be written."""
        self.make_folder(self.folder_of(task))
        return self.path(task, attempt)

    def make_folder(self, folder: str) -> None:
        if os.access(folder, os.F_OK):  # ten times faster than a mkdir that fails
            return
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        with suppress(FileExistsError):  # another worker may be making it
            os.mkdir(folder, 0o700)

    def room(self) -> int:
        """Free bytes on the disk that we may use; plenty if the file system does not say."""
        try:
            disk = os.statvfs(os.path.dirname(self.root))
        except OSError:
            return MAX_LENGTH
        blocks = disk.f_bavail if os.geteuid() else disk.f_bfree
        return blocks * disk.f_frsize if disk.f_blocks else MAX_LENGTH

    def takes_long(self, task: str, attempt: int) -> None:
        """Make its output visible while it runs."""

    def ended(self, task: str, attempt: int) -> int | None:
        """The final size, after all processes of the attempt have ended."""
        return self.local_size(task, attempt)

    def finished(self, task: str, attempt: int) -> None:
        """Nothing about the output changes from now on: let other hosts read it."""
        if self.shared is not None:
            self.shared.finished(self, task, attempt)

    def publish(self) -> None:
        """Before results are stored: the outputs of these attempts are readable on all hosts."""
        if self.shared is not None:
            self.shared.publish()

    def close(self) -> None:
        """No more will be written."""

    def size(self, task: str, attempt: int) -> int | None:
        """The size, None if there is no such output."""
        size = self.local_size(task, attempt)
        if size is None and self.shared is not None:
            return self.shared.size(task, attempt)
        return size

    def read(self, task: str, attempt: int, start: int, most: int) -> bytes:
        text = self.read_local(task, attempt, start, most)
        if text is None and self.shared is not None:
            return self.shared.read(task, attempt, start, most)
        return text or b""

    def local_size(self, task: str, attempt: int) -> int | None:
        """The size of an output on this host."""
        try:
            return os.stat(self.path(task, attempt)).st_size
        except OSError:
            return self._packs.size(self.folder_of(task), task, attempt)

    def read_local(self, task: str, attempt: int, start: int, most: int) -> bytes | None:
        """A piece of an output on this host; None if it has no such output."""
        try:
            with open(self.path(task, attempt), "rb") as file:
                file.seek(start)
                return file.read(most)
        except FileNotFoundError:
            return self._packs.read(self.folder_of(task), task, attempt, start, most)

    def pieces(self, task: str, attempt: int) -> Iterator[bytes]:
        """All of an output that can be read here, with a note where a part is missing."""
        start = 0
        while True:
            if text := self.read(task, attempt, start, PIECE):
                yield text
                start += len(text)
            elif missing := self.missing_part(task, attempt, start):
                yield missing.note
                start = missing.end
            else:
                return

    def missing_part(self, task: str, attempt: int, start: int) -> Missing | None:
        """The part from `start` on that cannot be read here, if the output continues after it."""
        if self.shared is None or self.local_size(task, attempt) is not None:
            return None
        return self.shared.missing_part(task, attempt, start)

    def is_whole(self, task: str, attempt: int) -> bool:
        """Whether all of a finished output can be read here."""
        if self.shared is None or self.local_size(task, attempt) is not None:
            return True
        kept = self.shared.kept(task, attempt)
        return kept is not None and kept.is_complete

    def where(self, task: str, attempt: int) -> str:
        """For an output that cannot be read: where it may be."""
        host = "" if self.shared is None else self.shared.host_of(task, attempt)
        if self.shared is None or host in ("", self.shared.host):
            return f"no output stored here for {task}, attempt {attempt}."
        return (
            f"no output stored here for {task}, attempt {attempt}: it ran on host {host}, "
            "and nothing it printed has been stored where other hosts can read it."
        )

    def as_file(self, task: str, attempt: int) -> str:
        """The path of a file with the whole output."""
        path = self.path(task, attempt)
        if os.path.exists(path):
            return path
        text = self._packs.read(self.folder_of(task), task, attempt, 0, MAX_LENGTH)
        if text is None and self.shared is not None and self.is_whole(task, attempt):
            text = self.shared.read(task, attempt, 0, MAX_LENGTH)
            self.make_folder(os.path.dirname(path))
        if text is not None:
            from hypervisor.core.private_files import replace_private_file

            replace_private_file(path, text)
        return path

    def last_line(self, task: str, attempt: int, end: bytes | None = None) -> str:
        """The last non-empty line so far, to show progress. `end`: of an output elsewhere."""
        if end is None:
            size = self.local_size(task, attempt) or 0
            end = self.read_local(task, attempt, max(size - 2000, 0), 2000) or b""
        text = end.decode("utf-8", "replace")
        lines = [line.strip() for line in text.replace("\r", "\n").split("\n")]
        return next((line for line in reversed(lines) if line), "")

    def bound(self, task: str, attempt: int, keep: int) -> None:
        """Shorten an output that is too long to its head and tail, with a note in between."""
        path = self.path(task, attempt)
        try:
            size = os.stat(path).st_size
        except OSError:
            return
        if size <= keep + PIECE:
            return
        half = keep // 2
        left_out = size - 2 * half
        note = f"\n… {left_out} bytes left out by Hypervisor …\n".encode()
        with open(path, "r+b") as file:
            file.seek(size - half)
            tail = file.read(half)
            file.seek(half)
            file.write(note + tail)
            file.truncate()

    def all(self) -> Iterator[Output]:
        """Every stored output, in no particular order."""
        with suppress(FileNotFoundError), os.scandir(self.root) as groups:
            for group in groups:
                if group.is_dir(follow_symlinks=False):
                    yield from self._of_group(group.name)

    def remove(self, outputs: Iterable[Output]) -> list[Output]:
        """Delete outputs and their patches; returns the deleted ones. Packs that are still being
        written are left for later."""
        groups: dict[str, list[Output]] = {}
        for output in outputs:
            groups.setdefault(self.folder_of(output.task), []).append(output)
        return [
            o for folder, of_folder in groups.items() for o in self._remove_from(folder, of_folder)
        ]

    def recover(
        self,
        worker: str,
        running: tuple[str, int] | None = None,
        ended: Iterable[tuple[str, int]] = (),
    ) -> None:
        """After a worker died: store the output of its last attempt, and let other hosts read it
        and those of attempts whose results are not stored yet."""
        spool = self.spool_of(worker)
        with suppress(OSError):
            if running is not None and os.stat(spool).st_size:
                os.rename(spool, self.prepare(*running))
            else:
                os.unlink(spool)
        for task, attempt in (*([running] if running else ()), *ended):
            self.finished(task, attempt)
        self.publish()

    def spool_of(self, worker: str) -> str:
        """The file that a worker's commands write to first."""
        name = worker.rpartition("/")[2]  # its process id and a unique suffix
        if not name.translate(NO_SIGNS).isalnum():
            raise InvalidInput(f"invalid worker id {worker[:60]!r}")
        return f"{self.root}/{SPOOLS}/{name}"

    def _of_group(self, group: str) -> Iterator[Output]:
        from hypervisor.runs.spec import Output

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
        from hypervisor.runs.spec import Output

        with suppress(OSError), os.scandir(folder) as files:
            for file in files:
                task, _, suffix = file.name.partition(".")
                number, ending = os.path.splitext(suffix)
                ours = task.isalnum() and task[:GROUP] == group
                if ours and ending == ".log" and number.isdecimal():
                    status = file.stat(follow_symlinks=False)
                    yield Output(task, int(number), status.st_size, int(status.st_mtime * 1000))

    def _remove_from(self, folder: str, outputs: list[Output]) -> list[Output]:
        keys = {(output.task, output.attempt) for output in outputs}
        packed = [index for index in self._packs.of(folder) if not keys.isdisjoint(index.records)]
        in_use = [index.records for index in packed if not archive.remove_records(index.pack, keys)]
        removed = [
            output
            for output in outputs
            if _are_unlinked(self.path(output.task, output.attempt))
            and not any((output.task, output.attempt) in records for records in in_use)
        ]
        with suppress(OSError):
            os.rmdir(folder)  # only once it is empty
        return removed


def _are_unlinked(path: str) -> bool:
    """The file of an output, its patch, the output of its setup, the times of its tools."""
    stem = path.removesuffix(".log")
    for name in (f"{stem}.patch", f"{stem}.setup", f"{stem}.tools", path):
        try:
            os.unlink(name)
        except FileNotFoundError:
            pass
        except OSError:
            return False
    return True


def _changed_at(path: str) -> int:
    with suppress(OSError):
        return int(os.stat(path).st_mtime * 1000)
    return 0
