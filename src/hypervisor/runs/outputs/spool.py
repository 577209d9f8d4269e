"""The spool: one file that all commands of a worker write to in turn.

Creating a file costs more than most short commands print. So a command writes to its worker's
spool, and its output is copied from there into a pack. The spool is renamed to an output file of
its own if the command takes long, prints much, or leaves a process that may still write: nothing
may end up in the output of another attempt.
"""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.runs.outputs.archive import Writer
from hypervisor.runs.outputs.files import Outputs

if TYPE_CHECKING:
    from hypervisor.runs.outputs.shared import SharedOutputs

MAX_PACKED_LENGTH = 4096


class Spool(Outputs):
    def __init__(self, data: str, worker: str, shared: SharedOutputs | None = None) -> None:
        super().__init__(data, shared)
        self._worker, self._path = worker, self.spool_of(worker)
        self._pack = Writer(os.path.basename(self._path))
        self._handle = -1
        self._current: tuple[str, int] | None = None
        signal.signal(signal.SIGIO, signal.SIG_IGN)  # sent to the holder of a lease

    def prepare(self, task: str, attempt: int) -> str:
        if self._current is not None and os.fstat(self._handle).st_size:
            self._place_or_drop(*self._current)  # it was cancelled: `ended` was not called
        if self._handle < 0 or not os.fstat(self._handle).st_nlink:
            self._begin()
        self._current = task, attempt
        return self._path

    def takes_long(self, task: str, attempt: int) -> None:
        if self._current == (task, attempt):
            with suppress(OSError):  # then it is tried again at its end
                self._place(task, attempt)

    def ended(self, task: str, attempt: int) -> int | None:
        if self._current != (task, attempt):
            return self.local_size(task, attempt)
        alone, status = self._is_ours_alone(), os.fstat(self._handle)
        fits = status.st_nlink and status.st_size <= MAX_PACKED_LENGTH
        if not (alone and fits and self._is_packed(status.st_size)):
            self._place_or_drop(task, attempt)
            return self.local_size(task, attempt)
        self._current = None
        return status.st_size

    def close(self) -> None:
        self._pack.close()
        self._close_handle()
        self.recover(self._worker)

    def _is_packed(self, size: int) -> bool:
        assert self._current is not None
        task, attempt = self._current
        try:
            text = os.pread(self._handle, size, 0) if size else b""
            self._pack.append(self.folder_of(task), task, attempt, text)
            if size:
                self._empty()
        except OSError:  # no room for another copy, or the like
            return False
        return True

    def _begin(self) -> None:
        self._close_handle()
        self.make_folder(os.path.dirname(self._path))
        flags = os.O_RDONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._handle = os.open(self._path, flags, 0o600)

    def _is_ours_alone(self) -> bool:
        """Whether no process has it open for writing: only then is a lease granted. On a file
        system without leases, every output gets its own file."""
        try:
            fcntl.fcntl(self._handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError:
            return False
        fcntl.fcntl(self._handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True

    def _empty(self) -> None:
        """Truncate it by an open and a close: a file system may flush a truncated file at its next
        close, which costs nothing while it is empty."""
        os.close(os.open(self._path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC))

    def _place(self, task: str, attempt: int) -> None:
        """Rename the spool to this attempt's own file; its writers are not affected."""
        with suppress(FileNotFoundError):  # it has been removed
            os.rename(self._path, super().prepare(task, attempt))
        self._close_handle()

    def _place_or_drop(self, task: str, attempt: int) -> None:
        """Drop the output if the disk is full: the result of the command matters more."""
        try:
            self._place(task, attempt)
        except OSError:
            self._close_handle()
            self.recover(self._worker)

    def _close_handle(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle, self._current = -1, None
