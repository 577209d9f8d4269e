"""Changes the user's task files without ever losing what they wrote.

Our own processes take a lock. The owner does not: a file is exchanged with a finished copy, and
the replaced file is checked. If it is not what was read, the owner was faster, and the edit is
made again on their version. The next process that takes the lock cleans up after a killed one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from hypervisor.core.atomic_replace import PATIENCE, FileBusy, digest
from hypervisor.core.errors import HypervisorError
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.task_files.change import (
    Change,
    Lock,
    Original,
    explaining,
    read_file,
    recover,
    refuse_protected,
)
from hypervisor.queue.receipt import Receipt

LOCK_DIGITS = 3  # enough locks, and a bounded number of lock files
GROUP = 16  # files that are changed together
LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW

Edit = Callable[[bytes], bytes]
Outcomes = list[bool | Exception]


class Job(NamedTuple):
    """One file to change; a problem with it does not affect other files."""

    number: int
    path: str
    edit: Edit

    @contextmanager
    def report_errors(self, outcomes: Outcomes) -> Iterator[None]:
        try:
            yield
        except (HypervisorError, OSError) as error:
            outcomes[self.number] = error


class TaskFiles:
    """`lock_folder` is private, on this host, and the same for all processes of ours that change
    these files. Without `sync`, a power cut may leave the last files empty."""

    def __init__(self, lock_folder: str, *, sync: bool = True) -> None:
        self._folder = os.path.realpath(lock_folder)
        self._sync = sync

    def read(self, path: str) -> bytes:
        return read_file(os.path.realpath(path) if os.path.islink(path) else path).data

    def change(self, path: str, edit: Edit) -> bool:
        """Replace the content with the result of `edit`, in one step; False if it is the same.

        `edit` is called again on the new content if the owner wrote in between."""
        path = os.path.realpath(path)
        with self._locked(path) as lock:
            return self._change(lock, path, edit)

    def change_all(self, edits: Sequence[tuple[str, Edit]]) -> Outcomes:
        """Change many files. All are written first and then synced, which waits for the disk about
        once. Returns for each what `change` returns or raises."""
        outcomes: Outcomes = [False] * len(edits)
        folders: dict[str, str] = {}
        jobs = [Job(n, _real_path(path, folders), edit) for n, (path, edit) in enumerate(edits)]
        for start in range(0, len(jobs), GROUP):
            for job in self._change_group(jobs[start : start + GROUP], outcomes):
                with job.report_errors(outcomes):
                    outcomes[job.number] = self.change(job.path, job.edit)
        return outcomes

    def append_receipts(self, path: str, receipts: Sequence[Receipt]) -> bool:
        """Add the missing receipts of a task to its file; False if it has all of them.

        If their section is the last, this is one write at the end of the file."""
        from hypervisor.inputs.task_files.receipts_section import section_start, with_receipts

        path = os.path.realpath(path)
        with self._locked(path) as lock:
            for _ in _rounds():
                original = read_file(path, wait=True)
                old, new = original.data, with_receipts(original.data, receipts)
                if new == old:
                    return False
                if section_start(old) is None or not new.startswith(old):
                    return self._change(lock, path, lambda data: with_receipts(data, receipts))
                if self._append(path, original, new[len(old) :]):
                    return True
        raise FileBusy(path)

    def _change(self, lock: Lock, path: str, edit: Edit) -> bool:
        for tries in _rounds():
            original = read_file(path, wait=True)
            new = edit(original.data)
            if new == original.data:
                return tries > 0  # the owner, or an earlier try, wrote exactly this
            change = Change(lock, path, original, new)
            try:
                change.write()
                if self._sync:
                    change.sync()
                if change.swap():
                    return True
            finally:
                change.close()
        raise FileBusy(path)

    def _change_group(self, jobs: Sequence[Job], outcomes: Outcomes) -> list[Job]:
        """Change files together. Returns the jobs to do one by one: their lock was taken, or the
        owner was faster. Never waits for a lock while holding another."""
        retried: list[Job] = []
        written: list[tuple[Job, Change]] = []
        synced: list[tuple[Job, Change]] = []
        with ExitStack() as stack:
            for job in jobs:
                with job.report_errors(outcomes):
                    try:
                        lock = stack.enter_context(self._locked(job.path, wait=False))
                    except BlockingIOError:  # another process has it, or we for another file
                        retried.append(job)
                        continue
                    if change := _written(lock, job, stack, outcomes):
                        written.append((job, change))
            for job, change in written:
                with job.report_errors(outcomes):
                    if self._sync:
                        change.sync()
                    synced.append((job, change))
            for job, change in synced:
                with job.report_errors(outcomes):
                    changed = outcomes[job.number] = change.swap()
                    if not changed:
                        retried.append(job)
        return retried

    def _append(self, path: str, original: Original, added: bytes) -> bool:
        """False if it is no longer the file that was read."""
        refuse_protected(path, original.status)
        with explaining(path):
            file = os.open(path, APPEND)
        try:
            before = os.fstat(file)
            size = len(original.data)
            if not os.path.samestat(before, original.status) or before.st_size != size:
                return False
            self._write_end(file, size, added)
            alone = os.fstat(file).st_size == size + len(added)
        finally:
            os.close(file)
        with explaining(path):
            return alone and os.path.samestat(os.stat(path), original.status)

    def _write_end(self, file: int, size: int, added: bytes) -> None:
        written = os.write(file, added)
        if written < len(added):  # no space for all of it: none is better than a part
            if os.fstat(file).st_size == size + written:
                os.ftruncate(file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._sync:
            os.fsync(file)

    @contextmanager
    def _locked(self, path: str, wait: bool = True) -> Iterator[Lock]:
        """The lock of a path; without `wait`, BlockingIOError if it is taken."""
        file = self._lock_file(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            lock = Lock(file, self._folder)
            recover(lock)
            yield lock
        finally:
            os.close(file)

    def _lock_file(self, path: str) -> int:
        name = digest(os.fsencode(path))[:LOCK_DIGITS]
        lock_path = os.path.join(self._folder, f"{name}.lock")
        try:
            return os.open(lock_path, LOCK, 0o600)
        except FileNotFoundError:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            return os.open(lock_path, LOCK, 0o600)


def _written(lock: Lock, job: Job, stack: ExitStack, outcomes: Outcomes) -> Change | None:
    """The change, written but not synced, which the stack will close; None if nothing changes."""
    original = read_file(job.path, wait=True)
    new = job.edit(original.data)
    if new == original.data:
        return None
    change = Change(lock, job.path, original, new)

    def close() -> None:
        with job.report_errors(outcomes):
            change.close()

    stack.callback(close)
    change.write()
    return change


def _real_path(path: str, folders: dict[str, str]) -> str:
    """Like os.path.realpath, but each folder is looked up only once."""
    folder, name = os.path.split(path)
    if os.path.islink(path) or name in ("", ".", ".."):
        return os.path.realpath(path)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return os.path.join(folders[folder], name)


def _rounds() -> Iterator[int]:
    """Tries while the owner is faster: at least five, then more for some seconds."""
    deadline, tries = time.monotonic() + PATIENCE, 0
    while tries < 5 or time.monotonic() < deadline:
        yield tries
        tries += 1
