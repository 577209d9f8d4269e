"""Task files of people, changed without ever losing a byte of theirs.

Our own processes queue up at a lock. The owner does not: a file is changed by swapping a
finished copy in and looking at what came out (swapping.py). If that is not what was read,
the owner was quicker, and the edit is made again on what they wrote. What a killed process
left behind is put in order by the next one that holds the lock, before anything else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from hypervisor.core.errors import HypervisorError
from hypervisor.inputs.task_files.atomic_replace import (
    PATIENCE,
    Found,
    Lock,
    Swap,
    busy,
    explained,
    is_same_file,
    mark,
    read_file,
    read_settled,
    recover,
    refuse_protected,
)
from hypervisor.queue.receipt import Receipt

LOCK_DIGITS = 3  # so many locks are enough, and no more files than that pile up
AT_ONCE = 16  # files that are in the middle of being changed
LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


Edit = Callable[[bytes], bytes]


class Job(NamedTuple):
    """One file to be changed."""

    number: int
    real: str
    edit: Edit


class Group(NamedTuple):
    """Files that are being changed together: what is wrong with one does not keep the others
    from it. Plain lists, as thousands of files go this way."""

    locks: list[int]
    begun: list[tuple[Job, Swap]]
    written: list[tuple[Job, Swap]]
    left: list[Job]

    def close(self, outcomes: list[bool | Exception]) -> None:
        try:
            for job, swap in self.begun:
                try:
                    swap.close()
                except (HypervisorError, OSError) as error:
                    outcomes[job.number] = error
        finally:
            for lock in self.locks:
                with suppress(OSError):
                    os.close(lock)


class TaskFiles:
    """`lock_folder` is on this host, ours alone, and the same for all who change these files.

    Without `sync`, only a kill is survived: a power cut may leave the last files empty."""

    def __init__(self, lock_folder: str, *, sync: bool = True) -> None:
        self._folder = os.path.realpath(lock_folder)
        self._sync = sync

    def read(self, path: str) -> bytes:
        return read_file(os.path.realpath(path) if os.path.islink(path) else path).data

    def change(self, path: str, edit: Edit) -> bool:
        """Replace the content by what `edit` makes of it, in one step; False if that is the same.

        `edit` is called again whenever the owner wrote meanwhile, on what they wrote."""
        real = os.path.realpath(path)
        with self._locked(real) as lock:
            return self._changed(lock, real, edit)

    def change_all(self, edits: Sequence[tuple[str, Edit]]) -> list[bool | Exception]:
        """Many files, each as `change` does it. They are written first and then synced, so that
        the disk is waited for about once. Returns for each what `change` returns or raises."""
        outcomes: list[bool | Exception] = [False] * len(edits)
        folders: dict[str, str] = {}
        jobs = [Job(n, _real(path, folders), edit) for n, (path, edit) in enumerate(edits)]
        for start in range(0, len(jobs), AT_ONCE):
            self._change_some(jobs[start : start + AT_ONCE], outcomes)
        return outcomes

    def append_receipts(self, path: str, receipts: Sequence[Receipt]) -> bool:
        """Write down what is missing of a task's receipts; False if all are there.

        Their section being the last, that is one write at the end of the file."""
        from hypervisor.inputs.task_files.receipts_section import section_start, with_receipts

        real = os.path.realpath(path)
        with self._locked(real) as lock:
            for _ in _rounds():
                found = read_settled(real)
                new = with_receipts(found.data, receipts)
                if new == found.data:
                    return False
                if section_start(found.data) is None or not new.startswith(found.data):
                    return self._changed(lock, real, lambda data: with_receipts(data, receipts))
                if self._appended(real, found, new[len(found.data) :]):
                    return True
        raise busy(real)

    def _changed(self, lock: Lock, real: str, edit: Edit) -> bool:
        for tries in _rounds():
            found = read_settled(real)
            new = edit(found.data)
            if new == found.data:
                return tries > 0  # the owner, or we in an earlier round, wrote just that
            if self._swapped(Swap(lock, real, found, new)):
                return True
        raise busy(real)

    def _swapped(self, swap: Swap) -> bool:
        try:
            swap.write()
            if self._sync:
                swap.sync()
            return swap.made()
        finally:
            swap.close()

    def _change_some(self, jobs: Sequence[Job], outcomes: list[bool | Exception]) -> None:
        """No lock is waited for while another one is held: who is in the way comes last."""
        group = Group([], [], [], [])
        try:
            for job in jobs:
                try:
                    self._begin(job, group)
                except (HypervisorError, OSError) as error:
                    outcomes[job.number] = error
            self._finish(group, outcomes)
        finally:
            group.close(outcomes)
        for job in group.left:
            try:
                outcomes[job.number] = self.change(job.real, job.edit)
            except (HypervisorError, OSError) as error:
                outcomes[job.number] = error

    def _begin(self, job: Job, group: Group) -> None:
        lock = Lock(self._lock_file(job.real), self._folder)
        group.locks.append(lock.file)
        try:
            fcntl.flock(lock.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process holds it, or we ourselves for another file
            group.left.append(job)
            return
        recover(lock)
        found = read_settled(job.real)
        new = job.edit(found.data)
        if new != found.data:
            swap = Swap(lock, job.real, found, new)
            group.begun.append((job, swap))
            swap.write()
            group.written.append((job, swap))

    def _finish(self, group: Group, outcomes: list[bool | Exception]) -> None:
        synced = []
        for job, swap in group.written:
            try:
                if self._sync:
                    swap.sync()
                synced.append((job, swap))
            except (HypervisorError, OSError) as error:
                outcomes[job.number] = error
        for job, swap in synced:
            try:
                made = outcomes[job.number] = swap.made()
                if not made:  # the owner was quicker
                    group.left.append(job)
            except (HypervisorError, OSError) as error:
                outcomes[job.number] = error

    def _appended(self, real: str, found: Found, added: bytes) -> bool:
        """False if it is no longer the file that was read."""
        refuse_protected(real, found.status)
        try:
            file = os.open(real, APPEND)
        except OSError as error:
            raise explained(real, error) from None
        try:
            before = os.fstat(file)
            if not is_same_file(before, found.status) or before.st_size != len(found.data):
                return False
            self._write_end(file, before.st_size, added)
            alone = os.fstat(file).st_size == before.st_size + len(added)
        finally:
            os.close(file)
        try:
            return alone and is_same_file(os.stat(real), found.status)
        except OSError as error:
            raise explained(real, error) from None

    def _write_end(self, file: int, size: int, added: bytes) -> None:
        written = os.write(file, added)
        if written < len(added):  # no room for all: none is better than a part
            if os.fstat(file).st_size == size + written:
                os.ftruncate(file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._sync:
            os.fsync(file)

    @contextmanager
    def _locked(self, real: str) -> Iterator[Lock]:
        file = self._lock_file(real)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            lock = Lock(file, self._folder)
            recover(lock)
            yield lock
        finally:
            os.close(file)

    def _lock_file(self, real: str) -> int:
        name = mark(os.fsencode(real))[:LOCK_DIGITS]
        place = os.path.join(self._folder, f"{name}.lock")
        try:
            return os.open(place, LOCK, 0o600)
        except FileNotFoundError:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            return os.open(place, LOCK, 0o600)


def _real(path: str, folders: dict[str, str]) -> str:
    """As os.path.realpath says it; what is known of a folder is not looked up again."""
    if os.path.islink(path):
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    if name in ("", ".", ".."):
        return os.path.realpath(path)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return os.path.join(folders[folder], name)


def _rounds() -> Iterator[int]:
    """How often to try while the owner is quicker: a few times at least, then for a while."""
    until, tries = time.monotonic() + PATIENCE, 0
    while tries < 5 or time.monotonic() < until:
        yield tries
        tries += 1
